// See error_table.h. Rows are only added: a code that was given stays what it is.
#include "core/error_table.h"

#include <algorithm>
#include <cctype>

namespace tutti {
namespace {

using enum Speaker;
using enum Code;

constexpr ErrorRow kRows[] = {
    // invalid_argument
    {"TUTTI-E101", "setting not understood", library, invalid_argument, "TUTTI_",
     "An environment variable of tutti has a value that it does not take.",
     "`tutti env` lists every variable with its kind and default; `env | grep TUTTI_` shows what is set here.",
     "Correct or unset the variable that the message names. Over ssh and under schedulers look where it was exported: the job's script, ~/.bashrc, the container."},
    {"TUTTI-E102", "buffer missing or too small", library, invalid_argument, "wanted a buffer",
     "A pointer given to a collective is null, not mapped, or may not be read or written over the whole length.",
     "The message names the call, the argument and the bytes wanted. TUTTI_CHECK=1 looks at every buffer before the call.",
     "Allocate count x rank_count elements where the operation gathers or scatters; keep the buffer until Work has completed."},
    {"TUTTI-E103", "buffers overlap", library, invalid_argument, "overlaps",
     "Input and output share memory in a way that is not the operation's in-place form.",
     "Compare both ranges with the in-place rule of the operation in tutti/communicator.h.",
     "Use the in-place position exactly, or buffers apart."},
    {"TUTTI-E104", "no such root or peer", library, invalid_argument, "wanted 0 to",
     "A rank number in a call is not one of this communicator's.",
     "After split and shrink ranks are numbered anew: print rank() and rank_count() of the communicator that the call is made on.",
     "Pass a rank below rank_count()."},
    {"TUTTI-E110", "program not found", library, invalid_argument, "program not found|is not executable|cannot execute",
     "What `tutti run` shall start is not there, or may not be executed.",
     "`ls -l PROGRAM` on the host that says so; PATH there (over ssh it is that of a bare login).", "Give a path that all hosts have; a Python script is started as: python3 SCRIPT."},
    {"TUTTI-E111", "port taken", library, invalid_argument, "is taken",
     "Another process listens on the port where hosts or ranks shall meet.",
     "`ss -ltnp | grep PORT` on that host.", "End what is left of an earlier job, or choose another port; on one host leave --master-port out."},
    {"TUTTI-E112", "address is another host's", library, invalid_argument, "is not an address of this host",
     "Host 0 must listen on --master-addr, and does not own it.",
     "`ip addr` there; `getent hosts NAME`.", "Give host 0's own address to all hosts, and --node-rank 0 to host 0."},
    {"TUTTI-E113", "command line refused", library, invalid_argument,
     "not expected|is required|usage:|neither a code|no command is called|no program given|needs a subcommand|no examination of the network",
     "The command's words are not what it takes. Nothing was started.", "The command's --help.", "Do what the message says; flags of a program of `tutti run` go behind its name."},
    {"TUTTI-E105", "no address to meet at", library, invalid_argument, "address",
     "Where the ranks meet is missing or is not host:port.",
     "`env | grep -e TUTTI_ADDRESS -e MASTER_` in a rank.",
     "Start the ranks by `tutti run`, torchrun, srun or mpirun, or set TUTTI_ADDRESS=host:port to rank 0's host on all ranks."},
    {"TUTTI-E106", "launcher's variables do not fit", library, invalid_argument, "is not set",
     "Some of a launcher's variables are there and others are not.",
     "`env | grep -e RANK -e WORLD_SIZE -e SLURM -e OMPI -e PMI` in a rank.",
     "Unset the leftovers of another launcher, or set the missing one; docs/launching.md has the order in which they count."},
    {"TUTTI-E107", "host cannot be looked up", library, invalid_argument, "cannot resolve",
     "A host name is not known on this machine.",
     "`getent hosts NAME` on every host of the job.",
     "Use a name that all hosts know, or the number of the address."},
    {"TUTTI-E108", "flag refused", library, invalid_argument, "--",
     "A flag of the command is wrong, or contradicts another one. Nothing was started.",
     "The command's --help.",
     "Do what the message says of the flag."},
    {"TUTTI-E109", "checkpoint cannot be used", library, invalid_argument, "checkpoint",
     "A checkpoint is torn, damaged, or of another model or other data.",
     "manifest.json in its folder lists files, sizes and SHA-256 of each.",
     "--resume auto takes the newest one that holds; give the model and data flags of the run that wrote it."},
    {"TUTTI-E199", "wrong argument", library, invalid_argument, "",
     "An argument is wrong; nothing was sent, and the communicator still works.",
     "The message names the call, the value and what is wanted.", "Correct the call."},
    // invalid_state
    {"TUTTI-E201", "used after its end", library, invalid_state, "destroyed",
     "An operation was started on a communicator that is empty, or was destroyed or moved from.",
     "Look for an early end of the Communicator's scope, or a destroy() in an error path.",
     "Keep the Communicator as long as operations are started on it."},
    {"TUTTI-E202", "training is off its course", library, invalid_state, "loss",
     "The loss is not a number, or is not what it was before the checkpoint.",
     "The run's log in the --run folder: norm and loss of the steps before.",
     "A smaller --rate, a longer --warm-up or --clip; --on-nan skip leaves such steps out. After resuming: is it the same data?"},
    {"TUTTI-E203", "used in a child of fork()", library, invalid_state, "by fork()",
     "A communicator, or an operation of it, is used in a child of the process that it belongs to, such as a data loader's worker. The parent's job is not disturbed.",
     "The message has both pids: `ps -o pid,ppid,args -p PID,PID`.",
     "Leave communication to the parent. Processes that are to be ranks themselves make their own communicator, once they run."},
    {"TUTTI-E299", "not possible now", library, invalid_state, "",
     "The call is right but not in this state.", "The message says which state is wanted.", "Call in the order that tutti/communicator.h gives."},
    // mismatch
    {"TUTTI-E301", "ranks make different calls", library, mismatch, "called",
     "Ranks of one communicator have started different operations, or the same with another count, type, reduction or root.",
     "The message names both calls. Compare the code paths of the two ranks at that operation; TUTTI_LOG=debug prints each call.",
     "Let all ranks start the same operations in the same order: no collective inside `if rank == 0`, equal numbers of batches on all ranks."},
    {"TUTTI-E302", "settings differ", library, mismatch, "settings that all ranks must share",
     "A TUTTI_* setting that all ranks must share is not the same on all.",
     "`env | grep TUTTI_` on both hosts that are named.",
     "Export it in the job's script, or let `tutti run --hosts` carry it along."},
    {"TUTTI-E303", "another version", library, mismatch, "wire version",
     "Two builds that do not understand each other meet.",
     "`tutti version` and `ldd PROGRAM | grep tutti` on both hosts.", "Install the same tutti on all hosts and rebuild what links it statically."},
    {"TUTTI-E304", "another job key", library, mismatch, "job key",
     "Who answers does not hold this job's key: it is another job, or the key was not set to the same secret.",
     "Compare TUTTI_JOB_KEY on the hosts (by a hash of it, not by showing it).", "Export the same TUTTI_JOB_KEY on all hosts; let two jobs use two ports."},
    {"TUTTI-E305", "a rank was started twice", library, mismatch, "started twice",
     "Two processes say that they are the same rank.",
     "The message has both pids and hosts: `ps -fp PID` there.", "End the one left over from an earlier start; give each host its own --node-rank."},
    {"TUTTI-E306", "rank counts differ", library, mismatch, "was started with",
     "Processes of one job were started for different numbers of ranks.",
     "The start commands of both hosts: -n, --nnodes, or the scheduler's tasks.", "Start all hosts with the same numbers."},
    {"TUTTI-E307", "weights differ between ranks", library, mismatch, "the weights",
     "Ranks that should hold the same weights do not.",
     "TUTTI_CHECK=1 finds bits that flip on their way or in memory; --check-every 1 finds the step.",
     "Look at the named rank's memory and card; run it elsewhere and compare."},
    {"TUTTI-E399", "ranks disagree", library, mismatch, "",
     "Ranks disagree about something that they must share.", "The message names both sides.", "Make both the same."},
    // peer_lost
    {"TUTTI-E401", "a rank's process has ended", library, peer_lost, "is gone|its process ended",
     "The process of the named rank has ended: killed, crashed, out of memory, or it left early.",
     "Its own output and the last line of `tutti run` say how it ended; `dmesg | grep -i oom` on its host. `tutti report` reads what it did last.",
     "Mend what ended it. `tutti run --max-restarts` or `--min-ranks` lets the job go on without it."},
    {"TUTTI-E402", "a link was lost for good", library, peer_lost, "tcp ",
     "A TCP connection broke and none could be made again within TUTTI_LINK_TIMEOUT, or it carries nothing any more.",
     "`tutti doctor` on both hosts: firewall, MTU, a link that is down; counters of the NIC (`ip -s link`, `ethtool -S`).",
     "Mend the network; a larger TUTTI_LINK_TIMEOUT bridges longer breaks."},
    {"TUTTI-E403", "left behind by the others", library, peer_lost, "go on without this rank",
     "After a failure the others have agreed to go on without this rank: it was cut off, or did not call shrink in time.",
     "Was its host off the network, or the process stopped (a debugger, SIGSTOP, swap)?", "With `tutti run --max-restarts` it is taken in again by itself; else start it anew."},
    {"TUTTI-E404", "the smaller side of a cut", library, peer_lost, "can be reached",
     "The network is cut in two, and this side is the smaller one: it must end, since the other may go on.",
     "`tutti doctor` across the hosts once they see each other again.", "Mend the network; let the larger side go on."},
    {"TUTTI-E405", "only loopback is offered", library, peer_lost, "nothing but loopback",
     "The named rank offers the others only addresses like 127.0.0.1, and is in another container or on another host.", "TUTTI_INTERFACE there; `ip -brief addr` there; `tutti doctor` shows what a host offers.",
     "Unset TUTTI_INTERFACE, or name an interface that others reach."},
    {"TUTTI-E499", "a rank was lost", library, peer_lost, "",
     "The named rank does not take part any more.", "Its own output, and `tutti report`.", "As for TUTTI-E401."},
    // timeout
    {"TUTTI-E509", "another job key at the meeting point", library, timeout, "another key|another job key",
     "Who came, or who answers, does not hold this job's key: another job on the same port, or a key that was not set to the same secret.",
     "Compare TUTTI_JOB_KEY on the hosts (by a hash of it, not by showing it).", "Export the same TUTTI_JOB_KEY on all hosts; let two jobs use two ports."},
    {"TUTTI-E501", "not all ranks came", library, timeout, "ranks joined",
     "Some ranks did not reach the meeting point in time.",
     "Were they started? The message names them and, where they came and left, their pids. `tutti doctor` tells a firewall from a wrong address.",
     "Start all hosts within TUTTI_INIT_TIMEOUT (120 s), with the same address and key; open the port."},
    {"TUTTI-E508", "another version at the meeting point", library, timeout, "wire version",
     "Rank 0 is of another build, whose messages this one does not understand.",
     "`tutti version` and `ldd PROGRAM | grep tutti` on both hosts.", "Install the same tutti on all hosts and rebuild what links it statically."},
    {"TUTTI-E510", "no local port is free for calling the meeting point", library, timeout, "no local port",
     "The kernel has no free port for a connection: used up by other programs, or by connections that ended a minute ago.",
     "`ss -tan | awk '{print $1}' | sort | uniq -c`; `sysctl net.ipv4.ip_local_port_range`.", "`sysctl -w net.ipv4.ip_local_port_range='10000 65000'`."},
    {"TUTTI-E511", "the meeting point is at a loopback address", library, timeout, "every host has that address for itself",
     "This rank looked for rank 0 at 127.0.0.1, which is its own host, and found nobody of its job there.", "`env | grep -e TUTTI_ADDRESS -e MASTER_ADDR` on all hosts; `getent hosts NAME`.",
     "Give the address of rank 0's host as the others see it; take its name off the line of 127.0.0.1 in /etc/hosts."},
    {"TUTTI-E502", "no meeting point found", library, timeout, "no meeting point",
     "This rank found nobody of its job at the address.",
     "`tutti doctor` here: does the name resolve to rank 0's host, does anyone listen, is a firewall between?",
     "Start rank 0, and give the address of its host as the others see it (not 127.0.0.1)."},
    {"TUTTI-E503", "a rank has not made the call", library, timeout, "has not made the call",
     "The named rank lives and does not take part in the operation that the others wait in.",
     "What does it do? `py-spy dump --pid PID` or `gdb -p PID`; `tutti report` shows its last operations.",
     "Often it waits for data, writes a checkpoint, or has left the loop one step earlier. A longer TUTTI_ABSENT_TIMEOUT waits longer."},
    {"TUTTI-E504", "nothing moved", library, timeout, "nothing moved",
     "An operation made no progress within TUTTI_TIMEOUT although its ranks live.",
     "The hang report that all ranks print says who waits for whom; `tutti report` reads it afterwards. A circle means calls in different orders.",
     "Make all ranks call in the same order; mend the link that is named; raise TUTTI_TIMEOUT where the network may really stand still so long."},
    {"TUTTI-E505", "a rank does not answer", library, timeout, "answer",
     "The named rank's process or host says nothing any more, and nothing says that it has ended.",
     "Is the host up (ping), the process stopped (state T in ps), the machine swapping?", "Continue or restart it; mend the network."},
    {"TUTTI-E506", "hosts did not come", library, timeout, "hosts joined",
     "`tutti run` waited for the launchers of other hosts in vain.",
     "The message names those missing, and how calling host 0 came out.",
     "Start `tutti run` there with the same --nnodes, --master-addr, --master-port and TUTTI_JOB_KEY; a longer TUTTI_INIT_TIMEOUT waits longer."},
    {"TUTTI-E507", "ranks did not come together again", library, timeout, "come together",
     "After ranks were lost, too few came back in time.",
     "The message says who is missing: their launchers' last lines say why.", "Start their hosts' `tutti run` again; a smaller --min-ranks goes on with fewer."},
    {"TUTTI-E599", "time is over", library, timeout, "",
     "Nobody answered within the limit.", "The message names the limit and who was waited for.", "`tutti doctor` finds what stands between."},
    // network
    {"TUTTI-E607", "no local port is free", library, network, "no local port",
     "Every connection wants a port of this host, and those that the kernel gives are used up, by other programs or by connections that ended a minute ago.",
     "`ss -tan | awk '{print $1}' | sort | uniq -c`; `sysctl net.ipv4.ip_local_port_range`.",
     "`sysctl -w net.ipv4.ip_local_port_range='10000 65000'`; end what opens so many connections; fewer TUTTI_SOCKETS."},
    {"TUTTI-E608", "no port of the range is free", library, network, "TUTTI_PORT_RANGE",
     "Other processes listen on all ports of TUTTI_PORT_RANGE.", "`ss -ltnp` on that host; the message names the holder of the last one.", "A wider range: two ports a rank of the host at least."},
    {"TUTTI-E601", "port taken", library, network, "already in use",
     "Another process listens on the port where rank 0 must.",
     "The message names it where it can be seen; `ss -ltnp | grep PORT`.", "End what is left of an earlier job, or choose another port; `tutti run` on one host chooses a free one."},
    {"TUTTI-E602", "connection refused", library, network, "refused",
     "The host answers, and nothing listens on the port.",
     "Is rank 0 up, on that host and port? `ss -ltn` there.", "Start it first, or correct address and port."},
    {"TUTTI-E603", "no route", library, network, "unreachable",
     "This host has no way to the address.", "`ip route get ADDRESS`; `tutti doctor`.", "Choose another interface by TUTTI_INTERFACE, or mend routes."},
    {"TUTTI-E604", "address is not this host's", library, network, "assign requested address",
     "Rank 0 must listen on an address that its host does not own.", "`ip addr` on rank 0's host.", "Give rank 0's own address to all ranks."},
    {"TUTTI-E605", "host cannot be looked up", library, network, "look up host",
     "A host name is not known on this machine.", "`getent hosts NAME` on every host.", "Use a name that all hosts know, or the number of the address."},
    {"TUTTI-E606", "it is no tutti", library, network, "handshake",
     "Something else answers on the port, or a connection was closed during the handshake.", "`ss -ltnp` on that host.", "Choose another port; look for proxies and scanners on the way."},
    {"TUTTI-E699", "a system call on a connection failed", library, network, "",
     "The kernel refused or ended something on the network.", "The message has the call, the other end and the kernel's words.", "`tutti doctor` on both hosts."},
    // out_of_resources
    {"TUTTI-E701", "too many open files", library, out_of_resources, "too many open files",
     "The process has no descriptor left.", "`ulimit -n`, `ls /proc/PID/fd | wc -l`.", "Raise it: `ulimit -n 65536` before the start, LimitNOFILE in systemd, or the scheduler's limits."},
    {"TUTTI-E702", "no memory", library, out_of_resources, "memory",
     "The kernel gave no memory, or TUTTI_MEMORY_LIMIT does not suffice.", "`free -m`, the cgroup's memory.max, `ulimit -v`.", "Give the job more memory, or more TUTTI_MEMORY_LIMIT."},
    {"TUTTI-E703", "disk full", library, out_of_resources, "disk",
     "A file could not be written.", "`df -h` and `df -i` of the folder that is named.", "Make room or name another folder."},
    {"TUTTI-E704", "cannot be written", library, out_of_resources, "cannot be written|cannot write",
     "A file that was asked for cannot be made.", "`ls -ld` of its folder, `df -h` there.", "Name another place, or make the folder."},
    {"TUTTI-E799", "out of something", library, out_of_resources, "",
     "The kernel or a limit refused a resource.", "The message names it.", "Raise the limit that it names."},
    // unsupported, aborted, internal, damaged
    {"TUTTI-E801", "not possible here", library, unsupported, "",
     "What was asked for is known, but not to be had on this machine or with these ranks.", "The message says why; `tutti explain` and `tutti topo` show what there is.", "Leave the setting out, or ask for something that there is."},
    {"TUTTI-E811", "aborted by a rank", library, aborted, "aborted:",
     "A rank has called abort(): its reason is in the message.", "The output of the named rank.", "Mend its reason."},
    {"TUTTI-E812", "destroyed while pending", library, aborted, "destroyed",
     "A communicator was destroyed with operations under way.", "Which path destroys it? An exception, perhaps.", "wait() for what was started before destroy()."},
    {"TUTTI-E819", "ended before it was done", library, aborted, "",
     "What was under way was ended from this side.", "The message gives the reason.", "None is needed where it was meant."},
    {"TUTTI-E821", "a fault of tutti", library, internal, "",
     "Something that must not be has been.", "Keep the output of all ranks and the recorder's files.", "Please report it with both."},
    {"TUTTI-E831", "data was changed on its way", library, damaged, "",
     "A checksum does not fit: bits have flipped in memory, in shared memory or on the wire.",
     "The message names operation, step and rank. Run it again with TUTTI_CHECK=1; look at ECC counts (`edac-util`, `nvidia-smi -q -d ECC`).",
     "Take the host out of the job when it happens there again."},
    // Warnings: lines of the log, by which nothing has failed
    {"TUTTI-E017", "asked where all stand", warning, internal, "asked by a signal",
     "Somebody has sent the process the signal of TUTTI_REPORT_SIGNAL (SIGUSR1); the job is not disturbed by it.",
     "The report says who waits for whom, at which step and byte. `tutti report PID` reads more from outside.", "None is needed."},
    {"TUTTI-E001", "an operation stands still", warning, internal, "hang report",
     "An operation has not moved for TUTTI_REPORT_AFTER. Nothing has ended by it yet.",
     "The report says who has not called, who called something else, who does not answer and which link stalls; all ranks print the same one.",
     "Look at the rank that it names first: py-spy or gdb there; `tutti report` shows its last operations."},
    {"TUTTI-E002", "no such setting", warning, internal, "is not a setting of tutti",
     "A TUTTI_ variable that tutti does not know is in the environment.", "`tutti env` lists those that there are.",
     "Correct the name, or unset it."},
    {"TUTTI-E003", "a setting has no effect", warning, internal, "has no effect|have no effect|is not obeyed|is ignored",
     "A setting, often one of NCCL's, means nothing here or cannot be obeyed.", "The message says why; `tutti env` lists what tutti obeys, with NCCL's names.",
     "Unset it, or use the setting that the message names."},
    {"TUTTI-E018", "a setting of NCCL's is obeyed", warning, internal, "is taken as",
     "A variable of NCCL's is set, and tutti does what it means here.", "The message has both names; `tutti env` lists tutti's.", "Nothing, or set tutti's own name, which comes first."},
    {"TUTTI-E004", "the job has no secret", warning, internal, "no job key|TUTTI_JOB_KEY is not set",
     "Without TUTTI_JOB_KEY the key is derived from the address: whoever can reach the ports can join.", "`env | grep -c TUTTI_JOB_KEY` on the hosts.",
     "Export the same secret on all hosts (openssl rand -hex 32), or let `tutti run --hosts` make one."},
    {"TUTTI-E005", "no flight recorder", warning, internal, "no flight recorder",
     "The folder of TUTTI_RECORDER cannot be written or has no room; the job goes on without a recorder.", "`df -h` and `ls -ld` of the folder.",
     "Name another folder, make room, or set TUTTI_RECORDER=0."},
    {"TUTTI-E006", "a saved profile is not used", warning, internal, "the profile ",
     "The figures of an earlier measurement are damaged or of another machine; they are measured anew.", "The message names the file.", "Nothing; remove the file where the message comes again."},
    {"TUTTI-E007", "a rank of another version knocked", warning, internal, "turned away",
     "A process of another tutti tried to join this job.", "`tutti version` on all hosts.", "Install the same tutti on all hosts and rebuild what links it statically."},
    {"TUTTI-E008", "connections cannot be accepted", warning, internal, "cannot accept connections",
     "The kernel gives this process no further connection, most often for want of descriptors.", "`ulimit -n`, `ls /proc/PID/fd | wc -l`.", "`ulimit -n 65536` before the start."},
    {"TUTTI-E009", "no such interface", warning, internal, "TUTTI_INTERFACE",
     "TUTTI_INTERFACE matches no interface of this host.", "`ip -brief addr`.", "Correct it, choose by subnet (10.0.0.0/8), or unset it."},
    {"TUTTI-E010", "no RDMA", warning, internal, "no RDMA here",
     "RDMA was asked for and is not to be had on this host; TCP is used.", "`ibv_devinfo`; `tutti doctor`.", "Load the driver, give the container /dev/infiniband, or leave TUTTI_TRANSPORT at auto."},
    {"TUTTI-E011", "memory cannot be registered", warning, internal, "that cannot be registered",
     "The NIC may not lock the memory: data is copied, which costs speed.", "`ulimit -l`.", "`ulimit -l unlimited` before the start."},
    {"TUTTI-E012", "no such GID", warning, internal, "has no such entry",
     "TUTTI_IB_GID_INDEX names an entry that the port does not have.", "`show_gids`, or /sys/class/infiniband/*/ports/*/gids.", "Unset it: the best entry is found by itself."},
    {"TUTTI-E013", "ranks are not bound", warning, internal, "--bind",
     "The machine could not be read, so ranks run on any core.", "`tutti topo`.", "--bind none silences it."},
    {"TUTTI-E014", "no metrics", warning, internal, "TUTTI_METRICS",
     "The address of TUTTI_METRICS cannot be opened; the job goes on without.", "`ss -ltnp | grep PORT`.", "Choose another port, or an abstract name: @name."},
    {"TUTTI-E015", "ranks that wait are not taken in", warning, internal, "taken in|take this process in",
     "A rank that came back could not join those that are at work; they go on, and it is tried again.", "The message says what was in the way.", "Nothing, unless it stays so: then look at the network between the two hosts."},
    {"TUTTI-E016", "a checkpoint is missing", warning, internal, "no checkpoint",
     "A checkpoint could not be written; training goes on, and the one before stays valid.", "`df -h` and `df -i` of the --run folder.", "Make room: the next checkpoint is written at its time. --keep bounds how many stay."},
    {"TUTTI-E099", "something to know", warning, internal, "",
     "Something is not as wanted; nothing has failed by it.", "The message says what.", "Do what it says."},
    // The launcher's words about a process
    {"TUTTI-E901", "killed for want of memory", launcher, internal, "out of memory:",
     "The kernel's OOM killer ended a process of this control group.", "`dmesg | grep -i -A5 oom`; the rank's peak memory is in the line.", "Fewer ranks a host, a smaller batch, --zero, or a larger memory limit."},
    {"TUTTI-E902", "killed by SIGKILL", launcher, internal, "SIGKILL",
     "Somebody sent SIGKILL: a person, a scheduler at the end of the job's time, or a container's end.", "The scheduler's log; `dmesg` for the OOM killer.", "Ask for more time, or restart with --max-restarts."},
    {"TUTTI-E903", "crashed", launcher, internal, "SIGSEGV",
     "The program read or wrote memory that is not its own.", "`ulimit -c unlimited` and a core file; run one rank under gdb.", "Mend the program or the library whose frame is on top."},
    {"TUTTI-E904", "aborted itself", launcher, internal, "SIGABRT",
     "The program found something impossible and called abort(); an uncaught C++ exception does so too.", "Its last lines.", "Mend what they say."},
    {"TUTTI-E905", "bus error", launcher, internal, "SIGBUS",
     "Memory behind a mapping was not there: a full /dev/shm or disk, or a file that was cut.", "`df -h /dev/shm`; PyTorch's data loaders use it.", "A larger /dev/shm (docker run --shm-size=8g)."},
    {"TUTTI-E906", "program not found or not executable", launcher, internal, "exit status 127",
     "The shell or the loader did not find a program or library.", "`ldd PROGRAM`, PATH and LD_LIBRARY_PATH on that host.", "Install it on all hosts at the same path."},
    {"TUTTI-E907", "too few ranks are left", launcher, internal, "exit status 75",
     "Fewer ranks than --min-ranks were left; the trainer stopped with a checkpoint.", "Why ranks were lost: their own lines above.", "Start the job again: --resume auto goes on from the checkpoint."},
    {"TUTTI-E908", "ended by a signal", launcher, internal, "was killed by",
     "A signal ended the process.", "signal(7) tells what it is for.", "Find who sent it."},
    {"TUTTI-E910", "the launcher has ended", launcher, internal, "supervising process|the launcher",
     "`tutti run` itself, or the one that started this host's, was killed or told to stop: its ranks were stopped with it.",
     "Who killed it? The scheduler's log, `dmesg` for the OOM killer.", "Start the job again; --max-restarts on the other hosts bridges a lost one."},
    {"TUTTI-E911", "a part of the job on another host has failed", launcher, internal, "on another host",
     "A rank of another host failed, and all were stopped.", "That host's last lines.", "Mend what they say."},
    {"TUTTI-E909", "ended with a failure", launcher, internal, "",
     "The program itself ended with another status than 0.", "Its last lines, in the stream or in --log-dir.", "Mend what they say."},
    // Others, whose messages people look for
    {"TUTTI-N01", "NCCL: unhandled system error", other, internal, "unhandled system error",
     "A socket, file or shared-memory call failed inside NCCL. Usually: no usable network interface, /dev/shm too small, or a peer has died.",
     "NCCL_DEBUG=INFO and the first WARN line of any rank; `df -h /dev/shm`.", "NCCL_SOCKET_IFNAME to the right interface; docker --shm-size or --ipc=host; look for the rank that failed first."},
    {"TUTTI-N02", "NCCL: unhandled cuda error", other, internal, "unhandled cuda error",
     "A CUDA call failed: two ranks on one GPU, an older driver, an error left by an earlier kernel.",
     "NCCL_DEBUG=INFO; CUDA_LAUNCH_BLOCKING=1; `nvidia-smi`.", "Set the device to the local rank before the first collective; match driver and CUDA versions."},
    {"TUTTI-N03", "NCCL: remote process exited or there was a network error", other, internal, "remote process exited",
     "A peer has gone: this message is a consequence, not the cause.", "The output of the other ranks, for the first failure.", "Mend that one."},
    {"TUTTI-N04", "NCCL: invalid usage", other, internal, "ncclInvalidUsage",
     "Ranks call differently, or two use the same GPU.", "NCCL_DEBUG=WARN says which: \"Duplicate GPU detected\".", "One GPU a rank; the same calls on all ranks."},
    {"TUTTI-N05", "NCCL: Duplicate GPU detected", other, internal, "Duplicate GPU detected",
     "Two ranks chose the same device.", "CUDA_VISIBLE_DEVICES and LOCAL_RANK in each rank.", "torch.cuda.set_device(int(os.environ['LOCAL_RANK']))"},
    {"TUTTI-N06", "NCCL: no socket interface found", other, internal, "no socket interface found",
     "NCCL_SOCKET_IFNAME matches nothing, or there is only loopback.", "`ip addr` in the container.", "Unset it or name an interface that is up."},
    {"TUTTI-N07", "NCCL: call to ibv_ failed", other, internal, "ibv_",
     "RDMA setup failed: locked memory is limited, or the GID index is wrong.", "`ulimit -l`, `ibv_devinfo -v`, `show_gids`.", "`ulimit -l unlimited`; NCCL_IB_GID_INDEX; NCCL_IB_DISABLE=1 to compare."},
    {"TUTTI-T01", "PyTorch: Watchdog caught collective operation timeout", other, internal, "Watchdog caught collective operation timeout",
     "A collective did not end within its timeout (10 or 30 minutes): one rank is elsewhere, slow, or dead.",
     "Which rank did not reach that sequence number? TORCH_NCCL_TRACE_BUFFER_SIZE and py-spy on the slow one.", "Equal numbers of batches on all ranks; a longer timeout in init_process_group for long checkpoints."},
    {"TUTTI-T02", "PyTorch: the client socket has timed out", other, internal, "client socket has timed out",
     "A rank did not reach the store at MASTER_ADDR:MASTER_PORT.", "`nc -vz MASTER_ADDR MASTER_PORT` from that host.", "Start rank 0; open the port; use the address that others see."},
    {"TUTTI-T03", "PyTorch: address already in use", other, internal, "EADDRINUSE",
     "MASTER_PORT is taken, often by what is left of the last run.", "`ss -ltnp | grep PORT`.", "End it, or use --rdzv-endpoint=localhost:0; `tutti run` takes a free port."},
    {"TUTTI-T04", "PyTorch: ChildFailedError", other, internal, "ChildFailedError",
     "torchrun reports that a rank failed; the reason is above it.", "The first \"Root Cause\" row and that rank's traceback.", "Mend that one."},
    {"TUTTI-T05", "PyTorch: CUDA out of memory", other, internal, "CUDA out of memory",
     "The card's memory is used up or in pieces.", "`nvidia-smi`, torch.cuda.memory_summary().", "A smaller batch, recomputation, ZeRO; PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True."},
    {"TUTTI-T06", "PyTorch: parameters that did not receive grad", other, internal, "did not receive grad",
     "DistributedDataParallel waits for gradients that this step's forward pass does not use.", "TORCH_DISTRIBUTED_DEBUG=DETAIL names the parameters.", "find_unused_parameters=True, or use all of them."},
    {"TUTTI-T07", "PyTorch: NCCL communicator was aborted", other, internal, "communicator was aborted",
     "Another rank failed first, or the watchdog ended the communicator.", "The earliest failure in all ranks' logs.", "Mend that one."},
    {"TUTTI-G01", "Gloo: Connection closed by peer", other, internal, "Connection closed by peer",
     "A peer's process has ended; Gloo says so on all others.", "The first failure in the other ranks' output.", "Mend that one."},
    {"TUTTI-G02", "Gloo: connectFullMesh failed", other, internal, "connectFullMesh",
     "Ranks reached the store but not each other: the interface that Gloo chose is not routed, or a name resolves to 127.0.1.1.",
     "`getent hosts $(hostname)` on each host.", "GLOO_SOCKET_IFNAME to the right interface; correct /etc/hosts."},
    {"TUTTI-G03", "Gloo: timed out waiting for recv", other, internal, "waiting 1800000ms for recv",
     "A peer has not sent for 30 minutes: it waits elsewhere, or has gone.", "py-spy on all ranks.", "The same calls in the same order on all ranks."},
    {"TUTTI-M01", "MPI: there are not enough slots available", other, internal, "not enough slots",
     "More ranks than Open MPI counts cores or the scheduler has given.", "`mpirun --display-allocation`.", "--oversubscribe, or a hostfile with slots=."},
    {"TUTTI-M02", "MPI: ORTE was unable to reliably start", other, internal, "unable to reliably start",
     "mpirun's daemon did not come up on another host: ssh asks for something, or Open MPI is not on its PATH.", "`ssh HOST which orted`.", "--prefix, and ssh without a password."},
    {"TUTTI-M03", "MPI: mpirun has detected an attempt to run as root", other, internal, "attempt to run as root",
     "Open MPI refuses to run as root.", "`id`.", "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 in a container, or another user."},
    {"TUTTI-M04", "MPI: MPI_ABORT was invoked", other, internal, "MPI_ABORT was invoked",
     "A rank called MPI_Abort; the reason stands above.", "The output of the rank that is named.", "Mend that one."},
    {"TUTTI-M05", "MPI: a process was killed by signal 9", other, internal, "exited on signal 9",
     "Most often the kernel's OOM killer.", "`dmesg | grep -i oom` on that host.", "Fewer ranks a host or less memory a rank."},
    {"TUTTI-M06", "Slurm: Unable to confirm allocation", other, internal, "Unable to confirm allocation",
     "srun runs outside a job, or slurmctld does not answer.", "`sinfo`, `squeue`.", "Ask for an allocation by salloc or sbatch."},
};

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return char(std::tolower(c)); });
  return out;
}

// Phrases have a bar between them.
bool holds(std::string_view text, std::string_view phrases) {
  for (std::size_t begin = 0; begin <= phrases.size();) {
    const std::size_t end = std::min(phrases.find('|', begin), phrases.size());
    if (text.find(phrases.substr(begin, end - begin)) != std::string_view::npos) return true;
    begin = end + 1;
  }
  return false;
}

const ErrorRow* first_row(Speaker speaker, Code kind, std::string_view text) {
  for (const ErrorRow& row : kRows)
    if (row.speaker == speaker && row.kind == kind && holds(text, row.phrase)) return &row;
  return nullptr;
}

}  // namespace

std::span<const ErrorRow> error_rows() { return kRows; }

const ErrorRow& error_row(Code kind, std::string_view text) {
  const ErrorRow* const row = first_row(library, kind, text);
  return row ? *row : *first_row(library, internal, "");
}

const ErrorRow& warning_row(std::string_view line) { return *first_row(warning, internal, line); }
const ErrorRow& launcher_row(std::string_view line) { return *first_row(launcher, internal, line); }

const ErrorRow* find_error(std::string_view code_or_text) {
  std::string wanted = lower(code_or_text);
  for (const ErrorRow& row : kRows) {
    const std::string code = lower(row.code);
    if (wanted == code || "tutti-" + wanted == code) return &row;
  }
  for (const ErrorRow& row : kRows)      // a message that carries a code
    if (wanted.find("[" + lower(row.code) + "]") != std::string::npos) return &row;
  for (const ErrorRow& row : kRows)
    if (row.speaker == other && holds(wanted, lower(row.phrase))) return &row;
  for (const ErrorRow& row : kRows)
    if (row.speaker != other && row.phrase.size() > 6 && holds(wanted, lower(row.phrase))) return &row;
  return nullptr;
}

std::string with_code(std::string text, const ErrorRow& row) {
  if (text.find("[TUTTI-") == std::string::npos) text.insert(std::min(text.find('\n'), text.size()), " [" + std::string(row.code) + "]");
  return text;
}
std::string with_code(const Status& status) { return with_code(status.text(), error_row(status.code(), status.text())); }

}  // namespace tutti
