// What connections by strangers cost a running job: two ranks over TCP on one core, strangers from a process of its own
// on another, in slices of time with them and without, in turn. Prints the medians of both and of the ratio of
// neighbours.
//   strangers_perf [STRANGERS=10000] [PAIRS=20] [BYTES=4096]
#include <netinet/in.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "perf/driver/median.h"

namespace {

using Clock = std::chrono::steady_clock;

// In memory that all processes share.
struct Board {
  std::atomic<int> doors[64];                 // ports where ranks listen; 0: none
  std::atomic<int> wanted{0}, knocked{0};     // strangers: so many are to come, and so many have been
  std::atomic<bool> over{false};
};

void stay_on(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  if (::sched_setaffinity(0, sizeof set, &set) != 0) std::perror("sched_setaffinity");
}

void tell_doors(Board& board) {
  for (int fd = 3; fd < 1024; ++fd) {
    int listens = 0;
    socklen_t bytes = sizeof listens;
    sockaddr_in own{};
    socklen_t own_bytes = sizeof own;
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) != 0 || !listens) continue;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_bytes) != 0 || own.sin_family != AF_INET) continue;
    for (auto& door : board.doors) {
      int none = 0;
      if (door.compare_exchange_strong(none, ntohs(own.sin_port))) break;
    }
  }
}

// A scanner's nothing, a browser's request, noise, in turn.
void knock(int port, int number) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(std::uint16_t(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0) {
    const std::string words = number % 3 == 0   ? ""
                              : number % 3 == 1 ? "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
                                                : std::string(300, char(number));
    if (!words.empty() && ::send(fd, words.data(), words.size(), MSG_NOSIGNAL) < 0) std::perror("send");
    const linger at_once{1, 0};               // no port of ours stays behind
    ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  }
  ::close(fd);
}

[[noreturn]] void strangers(Board& board, int core) {
  ::setsid();                                 // the kernel shares out cores by session: the ranks' share is theirs
  stay_on(core);
  while (!board.over) {
    if (board.knocked >= board.wanted) {
      ::usleep(200);
      continue;
    }
    int count = 0;
    while (count < 64 && board.doors[count]) ++count;
    const int number = board.knocked;
    knock(board.doors[number % count], number);
    ++board.knocked;
  }
  ::_exit(0);
}

tutti::Communicator join(int rank, const std::string& address) {
  auto made = tutti::Communicator::create(rank, 2, address, {.job_key = "a secret of this job"});
  if (made) return std::move(made).value();
  std::fprintf(stderr, "%s\n", made.status().to_string().c_str());
  std::exit(1);
}

// Until rank 0 says that it was the last. Returns operations a second.
double work(tutti::Communicator& comm, std::vector<float>& x, const auto& over) {
  const auto start = Clock::now();
  int rounds = 0;
  for (float more = 1; more != 0; ++rounds) {
    for (int i = 0; i < 10; ++i)
      if (!comm.all_reduce({x.data(), x.data(), x.size(), tutti::DataType::f32, tutti::ReduceOp::max}).wait().ok())
        std::exit(1);
    if (comm.rank() == 0) more = over() ? 0 : 1;
    if (!comm.broadcast({&more, &more, 1, tutti::DataType::f32, 0}).wait().ok()) std::exit(1);
  }
  return 10 * rounds / std::chrono::duration<double>(Clock::now() - start).count();
}

double load() {
  double value = 0;
  return ::getloadavg(&value, 1) == 1 ? value : -1;
}

}  // namespace

int main(int argc, char** argv) {
  const int count = argc > 1 ? std::atoi(argv[1]) : 10'000, pairs = argc > 2 ? std::atoi(argv[2]) : 20;
  std::vector<float> x((argc > 3 ? std::size_t(std::atoi(argv[3])) : 4096) / sizeof(float), 1);
  if (count < 1 || pairs < 1 || x.empty()) {
    const tutti::Status wrong(tutti::Code::invalid_argument,
                              "usage: strangers_perf [STRANGERS] [PAIRS] [BYTES], numbers of at least 1, 1 and 4");
    std::fprintf(stderr, "strangers_perf: %s\n", wrong.to_string().c_str());
    return 2;
  }
  ::setenv("TUTTI_TRANSPORT", "tcp", 1);
  Board& board =
      *new (::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Board{};
  const std::string address = "@strangers-" + std::to_string(::getpid());
  const pid_t crowd = ::fork();
  if (crowd == 0) strangers(board, 1);
  stay_on(0);
  const pid_t other = ::fork();
  tutti::Communicator comm = join(other == 0 ? 1 : 0, address);
  work(comm, x, [end = Clock::now() + std::chrono::milliseconds(500)] { return Clock::now() > end; });
  tell_doors(board);
  if (!comm.barrier().wait().ok()) return 1;
  std::vector<double> without, with, ratios;
  for (int pair = 0; pair < pairs; ++pair) {
    const auto start = Clock::now();
    board.wanted = other == 0 ? board.wanted.load() : count / pairs * (pair + 1);
    with.push_back(work(comm, x, [&] { return board.knocked >= board.wanted; }));
    const auto span = Clock::now() - start;
    without.push_back(work(comm, x, [end = Clock::now() + span] { return Clock::now() > end; }));
    ratios.push_back(with.back() / without.back());
  }
  if (other == 0) ::_exit(0);
  board.over = true;
  ::waitpid(crowd, nullptr, 0);
  ::waitpid(other, nullptr, 0);
  std::printf(
      "%d strangers in %d slices, all_reduce of %zu bytes, load %.1f: %.0f operations a second without them, %.0f with "
      "them; ratio of neighbours %.3f (median)\n",
      board.knocked.load(), pairs, x.size() * sizeof(float), load(), tutti::perf::median(without),
      tutti::perf::median(with), tutti::perf::median(ratios));
  return 0;
}
