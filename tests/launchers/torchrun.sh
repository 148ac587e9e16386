# PyTorch's torchrun starts three ranks; it holds MASTER_PORT itself. Without PyTorch its environment is imitated, port and all.
source "$(dirname "$0")/common.sh"
if /usr/bin/python3 -c 'import torch.distributed.run' 2>/dev/null; then
  # -r and -t: the torchrun of PyTorch 1.13 ends with an error on Python 3.11 without them.
  /usr/bin/python3 -m torch.distributed.run --nnodes 1 --nproc_per_node 3 -r 1 -t 1 --no_python \
    --rdzv_backend c10d --rdzv_endpoint 127.0.0.1:0 "$bin/all_reduce_perf" "${sweep[@]}" >"$temp/torchrun.txt" 2>"$temp/torchrun.err" ||
    { cat "$temp/torchrun.txt" "$temp/torchrun.err" >&2; exit 1; }
  sed -i 's/^\[[^]]*\]: *//' "$temp/torchrun.txt"
  check torchrun 3 shm "$temp/torchrun.txt"
  exit 0
fi
# A listener of another program on MASTER_PORT, as torchrun's store is one.
exec 3< <(exec /usr/bin/env perl -MIO::Socket::INET -e '
  my $s = IO::Socket::INET->new(LocalAddr => "127.0.0.1", Listen => 64) or die; $| = 1; print $s->sockport, "\n";
  while (my $c = $s->accept) { push @held, $c }')
store=$!
trap 'kill $store 2>/dev/null || true' EXIT
read -r port <&3
for rank in 0 1 2; do
  RANK=$rank WORLD_SIZE=3 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port TORCHELASTIC_RUN_ID=r \
    "$bin/all_reduce_perf" "${sweep[@]}" >"$temp/torch_names.$rank" &
  pids[rank]=$!
done
for rank in 0 1 2; do wait "${pids[rank]}"; done
check "torchrun's names" 3 shm "$temp/torch_names.0"
