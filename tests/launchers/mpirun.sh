# Open MPI's and MPICH's mpirun start three ranks.
source "$(dirname "$0")/common.sh"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
ran=0
if command -v mpirun.openmpi >/dev/null; then
  mpirun.openmpi --oversubscribe -n 3 "$bin/all_reduce_perf" "${sweep[@]}" >"$temp/openmpi.txt"
  check "Open MPI" 3 shm "$temp/openmpi.txt"
  ran=1
fi
if command -v mpirun.mpich >/dev/null; then
  mpirun.mpich -n 3 "$bin/all_reduce_perf" "${sweep[@]}" >"$temp/mpich.txt"
  check MPICH 3 shm "$temp/mpich.txt"
  ran=1
fi
((ran)) || skip "neither mpirun.openmpi nor mpirun.mpich is installed"
