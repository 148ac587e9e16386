# `tutti run --hosts a,b` from a third host: ssh starts the launchers. A fake ssh enters the namespace of the host that it is told.
source "$(dirname "$0")/hosts.sh"
hosts_up 3
temp=$(mktemp -d "$temp/ssh.XXXXXX")
trap 'rm -rf "$temp"' EXIT
printf '127.0.0.1 localhost\n10.99.0.1 a\n10.99.0.2 b\n' >"$temp/hosts"
mount --bind "$temp/hosts" /etc/hosts
mkdir "$temp/bin"
# As sshd does: a shell of its own, the environment of a fresh login, standard streams passed on.
cat >"$temp/bin/ssh" <<'FAKE'
#!/bin/bash
while [[ $1 == -* ]]; do
  [[ $1 == -o ]] && shift
  shift
done
declare -A number=([a]=0 [b]=1)
echo "$1" >>"$(dirname "$0")/called"
exec ip netns exec "host${number[$1]}" env -i PATH=/usr/bin:/bin HOME="$HOME" bash -c "${*:2}"
FAKE
chmod +x "$temp/bin/ssh"
run() { on 2 env PATH="$temp/bin:$PATH" "$bin/tutti" run --hosts a,b --no-prefix -n 2 "$@"; }

run --log-dir "$temp/logs" "$bin/all_reduce_perf" "${sweep[@]}" >"$temp/right.txt"
check "two hosts by ssh" 4 shm+tcp "$temp/right.txt"
[[ $(sort "$temp/bin/called" | xargs) == "a b" ]]
# Beside the stream each rank has a log of its own, with the same lines.
[[ $(ls "$temp/logs" | xargs) == "rank-0.log rank-1.log rank-2.log rank-3.log" ]]
check "the log of rank 0" 4 shm+tcp "$temp/logs/rank-0.log"

# TUTTI_* settings travel, the key is on no command line, and the first failure is the last line.
rc=0
TUTTI_TIMEOUT=77s run sh -c 'test "$TUTTI_TIMEOUT" = 77s || exit 9; tr "\0" " " </proc/$PPID/cmdline | grep -q "$TUTTI_JOB_KEY" && exit 8
  test $TUTTI_RANK != 3 || { echo the disk is gone >&2; exit 5; }; sleep 60' >"$temp/fails.txt" 2>&1 || rc=$?
((rc == 5)) || { echo "status $rc instead of 5" >&2; cat "$temp/fails.txt" >&2; exit 1; }
tail -n 1 "$temp/fails.txt" | grep -q 'first failure: rank 3 on .* ended with exit status 5 .*its last line: the disk is gone' ||
  { cat "$temp/fails.txt" >&2; exit 1; }

# A signal for the launcher reaches ranks on all hosts.
run sh -c 'trap "echo heard by $TUTTI_RANK; exit 0" TERM; echo ready; while :; do sleep 0.1; done' >"$temp/signal.txt" 2>&1 &
all_ready() { (($(grep -c ready "$temp/signal.txt") == 4)); }
eventually "not all ranks have begun" all_ready
kill -TERM "$(pgrep -f -- "tutti run --hosts a,b --no-prefix -n 2 sh -c trap" | head -n 1)"
wait || true
[[ $(grep -c 'heard by' "$temp/signal.txt") == 4 ]] || { cat "$temp/signal.txt" >&2; exit 1; }
echo "two hosts by ssh: settings, failure, signals"
