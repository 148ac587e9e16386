# PyTorch's torchrun starts ranks of ours: a program by itself, and one that a Python script becomes. Its store holds
# MASTER_PORT meanwhile.
source "$(dirname "$0")/common.sh"
python=/usr/bin/python3      # the distribution's, whatever comes first on PATH
[[ -x $python ]] || skip "no $python"
why=$($python -c 'import torch.distributed.run' 2>&1) || skip "$python cannot import torch.distributed.run: ${why##*$'\n'}"

# torchrun RANKS NAME ARGUMENTS...: its output, without torchrun's own prefixes, in $temp/NAME.
torchrun() {
  local ranks=$1 name=$2
  shift 2
  # -r and -t: the torchrun of PyTorch 1.13 ends with an error on Python 3.11 without them.
  $python -m torch.distributed.run --nnodes 1 --nproc_per_node "$ranks" -r 1 -t 1 \
    --rdzv_backend c10d --rdzv_endpoint 127.0.0.1:0 "$@" >"$temp/$name" 2>"$temp/$name.err" ||
    { cat "$temp/$name" "$temp/$name.err" >&2; exit 1; }
  sed -i 's/^\[[^]]*\]: *//' "$temp/$name"
}
torchrun 3 torchrun.program --no_python "$bin/all_reduce_perf" "${sweep[@]}"
check "torchrun, a program" 3 shm "$temp/torchrun.program"

cat >"$temp/becomes.py" <<'PYTHON'
import os, sys
assert os.environ["WORLD_SIZE"] == "2" and os.environ["TORCHELASTIC_RUN_ID"]
os.execv(sys.argv[1], sys.argv[1:])
PYTHON
TUTTI_TRANSPORT=tcp torchrun 2 torchrun.script "$temp/becomes.py" "$bin/all_reduce_perf" "${sweep[@]}"
check "torchrun, a Python script" 2 tcp "$temp/torchrun.script"
