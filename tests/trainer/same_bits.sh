#!/usr/bin/env bash
# The whole of --deterministic's promise, with the command that docs/trainer.md gives: the preset `tiny` after 50 steps has the same bytes
#   as one process; on 1, 2, 3, 4 ranks, over shared memory and TCP, with plain data parallelism and ZeRO-1, 2, 3;
#   when it is killed behind step 20 and goes on from there with another number of ranks, another wire and another stage.
#   same_bits.sh BIN      BIN: the folder of train and tutti. A line for each run; fails when one of them ends with other bytes.
set -euo pipefail
bin=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
run=("$bin/train" --preset tiny --steps 50 --deterministic --seed 1 --hash)

last_hash() { sed -n '$s/^weights sha256 \([0-9a-f]\{64\}\)$/\1/p' "$1"; }
ranks_of() { echo "$bin/tutti" run --no-prefix -n "$1"; }
differing=0
compare() {
  local found
  found=$(last_hash "$work/log")
  if [[ $found == "$wanted" ]]; then echo "$1: the same"; return; fi
  echo "$1: ${found:-no hash at the end}; one process: $wanted"
  tail -n 5 "$work/log"
  differing=$((differing + 1))
}

"${run[@]}" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
wanted=$(last_hash "$work/log")
[[ $wanted ]] || { cat "$work/log"; echo "the last line is no hash"; exit 1; }
echo "one process: weights sha256 $wanted"

for ranks in 1 2 3 4; do
  for wire in shm tcp; do
    for zero in 0 1 2 3; do
      TUTTI_TRANSPORT=$wire $(ranks_of $ranks) "${run[@]}" --zero $zero >"$work/log" 2>&1 || true
      compare "$ranks ranks, $wire, zero $zero"
    done
  done
done

# A launcher that is told to end kills its ranks, wherever they are; the checkpoint of step 20 is whole when its manifest is there.
killed_behind_20() {
  local folder=$work/run
  rm -rf "$folder"
  "$@" --run "$folder" --checkpoint-every 20 --light-every 0 >"$work/log" 2>&1 &
  local launcher=$!
  while [[ ! -e $folder/checkpoint-00000020/manifest.json ]] && kill -0 $launcher 2>/dev/null; do sleep 0.05; done
  kill -TERM $launcher 2>/dev/null || true
  wait $launcher 2>/dev/null || true
  [[ -e $folder/checkpoint-00000020/manifest.json ]] || { cat "$work/log"; echo "no checkpoint of step 20"; exit 1; }
}

wires=(shm tcp) turn=0
for before in 1 2 3 4; do
  for after in 1 2 3 4; do
    [[ $before == "$after" ]] && continue
    wire=${wires[turn % 2]} wire_after=${wires[(turn / 2) % 2]} zero=$((turn % 4)) zero_after=$(((turn + 1 + turn / 4) % 4))
    turn=$((turn + 1))
    TUTTI_TRANSPORT=$wire killed_behind_20 $(ranks_of $before) "${run[@]}" --zero $zero
    if grep -q 'step 50/50' "$work/log"; then echo "step 50 came before the end"; exit 1; fi
    TUTTI_TRANSPORT=$wire_after $(ranks_of $after) "${run[@]}" --zero $zero_after --resume "$work/run/checkpoint-00000020" >"$work/log" 2>&1 || true
    grep -q 'step 21/50' "$work/log" && ! grep -q 'step 20/50' "$work/log" || { cat "$work/log"; echo "did not go on behind step 20"; exit 1; }
    compare "killed behind step 20 of $before ranks, $wire, zero $zero; on $after ranks, $wire_after, zero $zero_after"
  done
done
echo "$differing runs differ"
exit $((differing > 0))
