# Faults that keep two hosts from meeting: the doctor finds each and names it. Most are found by waiting.
source "$(dirname "$0")/doctor_common.sh"
wait_seconds=4

name="rank 0 is not there"
hosts_up 2
doctor 1
says 1 1 'reach .*10\.99\.0\.1:29511: refused: the host answers, and nothing listens' 'rank 1 could not reach rank 0'
found

name="a rank does not come"
doctor 0
says 0 1 'rank 1 did not come within 4 s \(1 of 2 ranks came\)'
found

name="the job is stopped while rank 0 waits"
wrap[0]="timeout --preserve-status 8"
wait_seconds=60 doctor 0
wrap=()
says 0 1 'rank 1 did not come before this job was stopped \(1 of 2 ranks came\)'
found

name="wrong address"
address=10.99.0.77 doctor 1
says 1 1 'reach .*10\.99\.0\.77:29511: (unreachable|no answer)'
found

name="name that is not known"
address=no-such-host.invalid doctor 1
says 1 1 "names .*'no-such-host.invalid' resolves to nothing here"
found

name="wrong address in the hosts file"
printf '127.0.0.1 localhost\n10.99.0.88 head\n' >"$temp/hosts1"
head_at() { on "$1" unshare -m bash -c 'mount --bind "$0" /etc/hosts && exec "$@"' "$2" "${@:3}"; }
rc=0
TUTTI_RANK=1 TUTTI_RANK_COUNT=2 TUTTI_ADDRESS=head:29511 head_at 1 "$temp/hosts1" "$bin/tutti" doctor --wait 3 --folder "" >"$temp/1.txt" 2>&1 || rc=$?
echo $rc >"$temp/1.rc"
says 1 1 "names .*'head' resolves to 10\.99\.0\.88 here" 'reach .*10\.99\.0\.88:29511'
printf '127.0.0.1 localhost\n127.0.1.1 head\n' >"$temp/hosts1"
rc=0
TUTTI_RANK=1 TUTTI_RANK_COUNT=2 TUTTI_ADDRESS=head:29511 head_at 1 "$temp/hosts1" "$bin/tutti" doctor --wait 2 --folder "" >"$temp/1.txt" 2>&1 || rc=$?
echo $rc >"$temp/1.rc"
says 1 1 "names .*'head' resolves to 127\.0\.1\.1 here, which is this host itself"
found

name="port taken by another program"
ip netns exec host0 python3 -c '
import socket
s = socket.create_server(("10.99.0.1", 29511))
while True:
    c, _ = s.accept()
    c.sendall(b"SSH-2.0-something\r\n")
    c.close()' &
stranger=$!
until on 0 bash -c 'exec 3<>/dev/tcp/10.99.0.1/29511' 2>/dev/null; do sleep 0.1; done
both
kill $stranger
wait $stranger 2>/dev/null || true
says 1 1 'someone else answers: .*SSH-2\.0-something'
says 0 1 'cannot open the meeting point: .*held by pid [0-9]+ \(python3\)'
found

name="another job key"
doctor 0 &
other=$!
TUTTI_JOB_KEY=another doctor 1
wait $other
says 1 1 'someone else answers: .*another job key'
says 0 1 'rank 1 did not come' 'strangers .*another job key'
found

name="firewall drops the port"
if command -v nft >/dev/null; then
  on 0 nft add table inet filter
  on 0 nft 'add chain inet filter input { type filter hook input priority 0; }'
  on 0 nft add rule inet filter input tcp dport 29511 drop
  both
  says 1 1 'filtered: the host answers on other ports, this one stays silent'
  says 0 1 'rank 1 did not come'
  on 0 nft flush ruleset
  found
  name="firewall drops all other ports"
  wait_seconds=20
  on 1 nft add table inet filter
  on 1 nft 'add chain inet filter input { type filter hook input priority 0; }'
  on 1 nft add rule inet filter input ct state new tcp dport '!=' 29511 drop
  both
  says 0 1 'reach .*10\.99\.0\.2:[0-9]+: (no answer|filtered)'
  on 1 nft flush ruleset
  found
fi

name="a route that leads nowhere"
wait_seconds=4
on 1 ip route add blackhole 10.98.0.0/16
address=10.98.0.1 doctor 1
says 1 1 'reach .*10\.98\.0\.1:29511'
found
