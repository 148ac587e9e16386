# Faults put between two hosts that meet, or into one of them: the doctor finds each and names it.
source "$(dirname "$0")/doctor_common.sh"
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
