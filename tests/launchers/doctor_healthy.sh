# A healthy pair of hosts: no warning and no failure, by `tutti run` on each host; figures of both ways; --json, --html, and
# a baseline that finds nothing changed.
source "$(dirname "$0")/doctor_common.sh"
hosts_up 2
name=healthy
on_host() {
  ip netns exec host"$1" "$bin/tutti" run --no-prefix -n 1 --nnodes 2 --node-rank "$1" --master-addr 10.99.0.1 --master-port 29511 \
    "$bin/tutti" doctor --wait 60 --folder "$temp" "${@:2}"
}
run_both() {
  local rc=0 other
  on_host 1 >"$temp/1.txt" 2>&1 &
  other=$!
  on_host 0 "$@" >"$temp/0.txt" 2>&1 || rc=$?
  echo $rc >"$temp/0.rc"
  rc=0
  wait $other || rc=$?
  echo $rc >"$temp/1.rc"
}
run_both --save "$temp/then.json" --html "$temp/page.html"
says 1 0
says 0 0 '2 hosts: .* no warning, no failure' '✓ bandwidth .*: [0-9.]+ of 1\.25 GB/s: [0-9]+ %|· bandwidth .*processors were the limit' \
  '✓ round trip' '✓ MTU .*1500, full packets arrive' '✓ clock' '✓ version .*all 2 hosts agree' '✓ library .*all 2 ranks over tcp: right sums' \
  '✓ reach .*10\.99\.0\.2:[0-9]+: connected' '✓ reach .*10\.99\.0\.1:[0-9]+: connected'
grep -q '</html>' "$temp/page.html" && ! grep -Eq 'src=|href=' "$temp/page.html"
echo "$name: no warning"

name=baseline
run_both --against "$temp/then.json"
says 0 0 'no failure'
if grep -q 'baseline.*MTU' "$temp/0.txt"; then echo "baseline: an MTU that has not changed" >&2; exit 1; fi
for h in 0 1; do ip -n host$h link set net0 mtu 1400; done
run_both --against "$temp/then.json"
says 0 0 'baseline .*path MTU: 1400 now, 1500 on'
echo "$name: tells what has changed"

name=json
run_both --json
says 0 0
python3 - "$temp/0.txt" <<'P'
import json, sys
told = json.load(open(sys.argv[1]))
assert len(told["hosts"]) == 2 and len(told["pairs"]) == 1, told
pair = told["pairs"][0]
assert pair["there"]["bytes_per_second"] > 1e6 and pair["here"]["bytes_per_second"] > 1e6, pair
assert all(f["verdict"] in ("pass", "note") for f in told["findings"]), told["findings"]
P
echo "$name: parses"
