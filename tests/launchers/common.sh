# Shared by the scripts here: skip, and what a run of all_reduce_perf must show. Sourced with the arguments BIN and TEMP.
set -euo pipefail
bin=$1 temp=$2
unset TUTTI_RANK TUTTI_RANK_COUNT TUTTI_ADDRESS RANK WORLD_SIZE
skip() { printf 'Skipped\n%s\n' "$1"; exit 77; }
fail() { echo "$1" >&2; exit 1; }
# eventually TEXT COMMAND...: waits until the command is true; if it does not become true in two minutes, fails with the text.
eventually() {
  local i
  for ((i = 0; i < 1200; i++)); do
    if "${@:2}"; then return; fi
    sleep 0.1
  done
  fail "$1"
}
sweep=(-b 8 -e 1M -f 16 -n 5)

# check NAME RANKS TRANSPORT FILE: one world of RANKS, right results, and that transport in the last column.
check() {
  local name=$1 ranks=$2 transport=$3 file=$4
  local shown rows
  shown=$(grep -c '#  Rank ' "$file" || true)
  rows=$(awk -v t="$transport" '$1 ~ /^[0-9]+$/ && $6 != "" && $NF == t && $9 == 0 && $13 == 0' "$file" | wc -l)
  if ((shown != ranks || rows < 4)); then
    echo "$name: $shown ranks of $ranks, $rows right rows over $transport" >&2
    cat "$file" >&2
    exit 1
  fi
  echo "$name: $ranks ranks, $rows sizes, no wrong value, over $transport"
}
