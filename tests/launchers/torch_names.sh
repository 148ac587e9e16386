# What torchrun leaves in the environment is enough, set here by hand for three ranks; MASTER_PORT is taken, as by its store.
source "$(dirname "$0")/common.sh"
command -v perl >/dev/null || skip "no perl to hold a port"
# A listener of another program on MASTER_PORT.
exec 3< <(exec perl -MIO::Socket::INET -e '
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
