#!/usr/bin/env bash
# Looks at the PTX of kernels that move bytes, with the functions that they call: of one type's (reductions, casts, one-shot and
# two-shot), or those that only move. Each loads and stores by 16 bytes (ld.global.v4, st.global.v4), a reduction all of its inputs
# so, and none keeps anything in local memory (but for the accounts of the one that carries groups). Ends with 1 and names those
# that do not, or when it does not find all.
#   wide_accesses.sh NVCC FILE.cu [FLAGS...]
set -euo pipefail
nvcc=$1 source=$2
shift 2
ptx=$(mktemp)
trap 'rm -f "$ptx"' EXIT
"$nvcc" "$@" -arch=compute_80 -ptx "$source" -o "$ptx"
awk '
  # A function begins with .entry or .func, and a body; declarations end in a semicolon. What it calls is remembered: a body is
  # hot by its own accesses, or by those of a function that it calls.
  function finish() {
    if (!name) return
    loads[name] = l; stores[name] = s; locals[name] = k; called[name] = calls; kind[name] = type
    name = ""
  }
  /^(\.visible |\.weak )*\.(entry|func)/ { line = $0; type = /\.entry/ ? "entry" : "func"; l = s = k = 0; calls = ""
    if (match(line, /_Z[A-Za-z0-9_]+/)) name = substr(line, RSTART, RLENGTH); else name = "" ; heading = !name; next }
  heading && match($0, /_Z[A-Za-z0-9_]+/) { name = substr($0, RSTART, RLENGTH); heading = 0 }
  /^;/ { name = "" }
  /ld\.global\.v4/ { ++l }
  /st\.global\.v4/ { ++s }
  /(ld|st)\.local|__local_depot/ { ++k }
  /call/ { in_call = 1 }
  in_call && match($0, /_Z[A-Za-z0-9_]+/) { calls = calls " " substr($0, RSTART, RLENGTH); in_call = 0 }
  /^}/ { finish() }
  END {
    for (f in kind) {
      inputs = 0; known = 0
      if (kind[f] != "entry") continue
      if (match(f, /6Reduce.*ELi[0-9]E/)) { inputs = substr(f, RSTART, RLENGTH); sub(/.*ELi/, "", inputs); inputs += 0; known = 1; if (!inputs) inputs = 8; ++reductions
        if (inputs <= 2) inputs *= 2 }                               # two packs of each are under way
      else if (f ~ /4Cast/) { inputs = 1; known = 1; ++casts }
      else if (f ~ /7OneShot|7TwoShot/) { inputs = 9; known = 1; ++shared }     # a copy, and a reduction of eight
      else if (f ~ /7Collect|5Carry/) { inputs = 4; known = 1; ++movers }       # four under way
      if (!known) { print f ": a kernel that this script does not know"; bad = 1; continue }
      wide_loads = loads[f]; wide_stores = stores[f]; local = locals[f]
      n = split(called[f], callees, " "); split("", seen)
      for (i = 1; i <= n; ++i) if (!(callees[i] in seen)) { seen[callees[i]]; wide_loads += loads[callees[i]]; wide_stores += stores[callees[i]]; local += locals[callees[i]] }
      if (wide_loads < inputs || !wide_stores || (local && f !~ /5Carry/)) {
        print f ": " wide_loads " wide loads where " inputs " are wanted, " wide_stores " wide stores, " local " local accesses"; bad = 1 }
    }
    print reductions + 0 " reductions, " casts + 0 " casts, " shared + 0 " one-shot and two-shot, " movers + 0 " that only move looked at"
    # Four operations; one to four inputs and any number (the same for five to eight); twelve types to cast to; one-shot and two-shot.
    exit bad || (!movers && (reductions < 20 || casts < 12 || shared < 8))
  }' "$ptx"
