#!/usr/bin/env bash
# Looks at the PTX of one type's kernels: each reduction loads every input and stores its output by 16 bytes (ld.global.v4,
# st.global.v4) and keeps nothing in local memory. Ends with 1 and names the kernels that do not, or when it finds none.
#   wide_accesses.sh NVCC FILE.cu [FLAGS...]
set -euo pipefail
nvcc=$1 source=$2
shift 2
ptx=$(mktemp)
trap 'rm -f "$ptx"' EXIT
"$nvcc" "$@" -arch=compute_80 -ptx "$source" -o "$ptx"
awk '
  /\.entry/ { kernel = $0; sub(/.*\.entry +/, "", kernel); sub(/\(.*/, "", kernel); loads = stores = local = 0
              # Reduce<type, op, inputs> and Cast<from, to>; a runtime number of inputs is in a function of its own
              inputs = 0
              if (match(kernel, /6Reduce.*ELi[1-9]E/)) { inputs = substr(kernel, RSTART, RLENGTH); sub(/.*ELi/, "", inputs); inputs += 0 }
              else if (kernel ~ /4Cast/) inputs = 1 }
  /ld\.global\.v4/ { ++loads }
  /st\.global\.v4/ { ++stores }
  /(ld|st)\.local/ { ++local }
  /^}/ { if (inputs) { ++seen
           if (loads < inputs || !stores || (local && kernel ~ /6Reduce/)) { print kernel ": " loads " wide loads for " inputs " inputs, " stores " wide stores, " local " local accesses"; bad = 1 } }
         inputs = 0 }
  END { print seen " kernels looked at"; exit bad || seen < 28 }' "$ptx"
