# Faults put between two hosts, or into one of them: the doctor finds each and names it.
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

wait_seconds=20
name="MTU mismatch of the ends"
hosts_up 2
ip -n host0 link set net0 mtu 9000
both
says 0 0 '! MTU .*(1500 on .*9000 on|9000 on .*1500 on)'
found

name="a switch with a smaller MTU"
ip -n host1 link set net0 mtu 9000
for h in 0 1; do on $h ip link set net0 gso_max_segs 1; done
both
says 0 1 '✗ MTU .*small messages pass and large ones stall'
found

name="link shaped to a tenth"
hosts_up 2
if on 0 tc qdisc add dev net0 root tbf rate 1gbit burst 256k latency 20ms 2>/dev/null; then
  both
  says 0 0 '! bandwidth .*0\.[01][0-9] of 1\.25 GB/s: [0-9]+ %, and the processors were idle|· bandwidth .*0\.[01][0-9] of 1\.25 GB/s.*processors were the limit'
  on 0 tc qdisc del dev net0 root
  found
fi

name="low limits"
wrap[1]="prlimit --nofile=70 --memlock=65536"
both
wrap=()
says 0 1 '✗ open files .*70 open files allowed' 'locked memory .*64 KiB may be locked' 'open files limit .*70 on'
found

name="half duplex"
echo half >"$temp/duplex"
wrap[1]="unshare -m bash $temp/with_file $temp/duplex /sys/class/net/net0/duplex"
printf 'mount --bind "$1" "$2" && exec "${@:3}"\n' >"$temp/with_file"
both
says 0 0 '! link .*net0 runs at half duplex'
found

name="a NIC whose errors grow"
# Written in place, so that a reader never sees half of it.
python3 -c '
import os, sys, time
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
for errors in range(10**6):
    os.pwrite(file, b"%020d\n" % errors, 0)
    time.sleep(0.01)' "$temp/errors" &
growing=$!
until [[ -s $temp/errors ]]; do sleep 0.1; done
wrap[1]="unshare -m bash $temp/with_file $temp/errors /sys/class/net/net0/statistics/rx_errors"
both
kill $growing
wait $growing 2>/dev/null || true
wrap=()
says 0 0 '! NIC errors .*net0: [0-9]+ errors in [0-9]+ packets during the test'
found

name="clock off by a minute"
clock_library=$(ls /usr/lib/*/faketime/libfaketime.so.1 2>/dev/null | head -1)
if [[ $clock_library ]]; then
  wrap[1]="env LD_PRELOAD=$clock_library FAKETIME=+60s FAKETIME_DONT_FAKE_MONOTONIC=1"
  both
  wrap=()
  says 0 0 '! clock .*the clock is (59\.9|60|60\.[0-9]*) s ahead of'
  found
fi

name="half a core"
# `ip netns exec` gives a fresh /sys, without control groups: the hierarchy is mounted again in there.
cat >"$temp/in_group" <<'P'
#!/bin/bash
mount -t tmpfs none /sys/fs/cgroup && mkdir /sys/fs/cgroup/cpu && mount -t cgroup -o cpu none /sys/fs/cgroup/cpu || exit 77
group=/sys/fs/cgroup/cpu/tutti-doctor-$$
mkdir $group && echo 50000 >$group/cpu.cfs_quota_us || exit 77
(echo $BASHPID >$group/cgroup.procs; exec "$@")
rc=$?
rmdir $group
exit $rc
P
if on 1 bash "$temp/in_group" true; then
  wrap[1]="bash $temp/in_group"
  both
  wrap=()
  says 0 0 '! cores .*the time of 0\.5 cores of'
  found
fi
