# `compare` between two hosts that perf/compare/link.sh makes: right results, no faster than the line, and nothing left behind.
source "$(dirname "$0")/common.sh"
source "$(dirname "$0")/network.sh"
command -v tc >/dev/null || skip "no tc command (package iproute2)"
out=$(mktemp -d -p "$temp")
trap 'rm -rf "$out"' EXIT
"$bin/compare" --transports link --ranks 2 4 --collectives all_reduce --bytes 8 1048576 --rounds 1 --budget 0.1 --without openmpi gloo \
  --out "$out" >"$out/said" 2>"$out/complained" || { cat "$out/complained" >&2; fail "compare ended with $?"; }
# 1 MB at 1 Gbit/s are 8.4 ms, of which a burst of 96 KB may save 0.8.
rows=$(awk -F'|' '$2 ~ /^ *1M *$/ && $3 >= 7000' "$out/said" | wc -l)
((rows == 2)) || { cat "$out/said" >&2; fail "$rows of 2 fields have a time for 1 MB that the line allows"; }
[[ -z $(ip netns list) ]] || fail "left behind: $(ip netns list)"
if "$bin/compare" --transports link --ranks 3 --collectives all_reduce --bytes 8 --rounds 1 --without openmpi gloo --out "$out" >/dev/null 2>"$out/complained"; then
  fail "3 ranks were halved"
fi
grep -q "3 ranks do not halve over two hosts" "$out/complained" || { cat "$out/complained" >&2; fail "no word about 3 ranks"; }
