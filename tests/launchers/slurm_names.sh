# What srun leaves in the environment is enough (no PMIx), set here by hand for three tasks of one host.
source "$(dirname "$0")/common.sh"
for rank in 0 1 2; do
  SLURM_PROCID=$rank SLURM_NTASKS=3 SLURM_LOCALID=$rank SLURM_JOB_ID=$((1000000 + $$)) SLURM_STEP_ID=0 \
    SLURM_STEP_NODELIST=localhost SLURM_JOB_NODELIST=localhost \
    "$bin/all_reduce_perf" "${sweep[@]}" >"$temp/slurm.$rank" &
  pids[rank]=$!
done
for rank in 0 1 2; do wait "${pids[rank]}"; done
check "Slurm's names" 3 shm "$temp/slurm.0"
