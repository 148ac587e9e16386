# Counts the instructions of an 8-byte all_reduce of two ranks, a rank's share, and compares with the limits: see CMakeLists.txt.
#   count.sh PROGRAM WORK_FOLDER LIMIT LIMIT_WITH_RECORDER
program=$1 work=$2 limit=$3 with_limit=$4
if ! command -v valgrind >/dev/null; then
  printf 'Skipped\nno valgrind here\n'
  exit 77
fi
rm -rf "$work" && mkdir -p "$work/recorders" || exit 1
times=500

# instructions NAME [FOLDER]: of one operation of one rank.
instructions() {
  valgrind --tool=callgrind '--toggle-collect=*hot_path(*' "--callgrind-out-file=$work/$1.out" "--log-file=$work/$1.log" \
    "$program" $times ${2:+"$2"} || { cat "$work/$1.log" >&2; return 1; }
  sed -n 's/.*Collected : \([0-9]*\).*/\1/p' "$work/$1.log" | awk -v times=$times '{ printf "%.0f\n", $1 / times / 2 }'
}
bare=$(instructions bare) && with=$(instructions with "$work/recorders") || exit 1
if [ -z "$bare" ] || [ "$bare" -lt 100 ]; then
  echo "nothing was counted: $bare"
  exit 1
fi
echo "instructions of an 8-byte all_reduce, one rank: $bare (limit $limit); with its flight recorder $with (limit $with_limit)"
[ "$bare" -le "$limit" ] && [ "$with" -le "$with_limit" ]
