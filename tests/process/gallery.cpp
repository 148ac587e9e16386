#include "tests/process/gallery.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>
#include <regex>
#include <stdexcept>
#include <thread>

#include "tests/process/faulty_sockets.h"
#include "tests/process/scenes.h"
#include "tests/process/strangers.h"

namespace tutti::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::vector<Cause> deaths() {
  const Settings shm{{"TUTTI_TRANSPORT", "shm"}}, tcp{{"TUTTI_TRANSPORT", "tcp"}};
  const Settings quick{{"TUTTI_TIMEOUT", "2s"}, {"TUTTI_ABSENT_TIMEOUT", "2s"}};
  return {
      {"killed_shm", "kill -9 of rank 0, over shared memory", Code::peer_lost, 0, seconds(10),
       [=] { return with_process(SIGKILL, shm, 1000); }},
      {"killed_tcp", "kill -9 of rank 0, over TCP", Code::peer_lost, 0, seconds(10),
       [=] { return with_process(SIGKILL, tcp, 1000); }},
      {"killed_in_a_large_one", "kill -9 of rank 0 in the middle of 12 MB", Code::peer_lost, 0, seconds(20),
       [=] { return with_process(SIGKILL, tcp, 3'000'000); }},
      {"stopped", "kill -STOP of rank 0", Code::timeout, 0, seconds(15),
       [=] { return with_process(SIGSTOP, quick, 1000); }},
      {"exits_early", "rank 0 exits after ten operations, without a word", Code::peer_lost, 0, seconds(10),
       [] {
         return with_process(0, {}, 1000, [](Communicator& comm) -> int {
           const bool well = reduce_often(comm, 1000, 10).ok();
           ::_exit(well ? 0 : 1);
         });
       }},
      {"destroys_early", "rank 0 destroys its communicator after ten operations", Code::peer_lost, 0, seconds(10),
       [] {
         return with_process(0, {}, 1000, [](Communicator& comm) {
           if (!reduce_often(comm, 1000, 10).ok()) return 1;
           comm.destroy();
           return 0;
         });
       }},
      {"aborts", "rank 2 calls abort()", Code::aborted, 2, seconds(5),
       [] {
         return ranks(3, {}, [](Communicator& comm) {
           if (const Status status = comm.barrier().wait(); !status.ok()) return status;
           if (comm.rank() == 2) comm.abort("the loss is not a number");
           return last(comm, {});
         });
       }},
      {"never_calls", "rank 1 is alive and never makes the call", Code::timeout, 1, seconds(10),
       [] {
         std::atomic<int> over{0};
         return ranks(3, {{"TUTTI_ABSENT_TIMEOUT", "1s"}}, [&](Communicator& comm) {
           if (const Status status = comm.barrier().wait(); !status.ok()) return status;
           if (comm.rank() == 1) {
             while (over < 2) std::this_thread::yield();
             return last(comm, {});
           }
           const Status status = reduce(comm, 10);
           ++over;
           return status;
         });
       }},
      {"is_late", "rank 1 comes 1.5 s late, with a timeout of one second", Code::ok, -1, seconds(10),
       [] {
         return ranks(3, {{"TUTTI_TIMEOUT", "1s"}}, [](Communicator& comm) {
           if (const Status status = comm.barrier().wait(); !status.ok()) return status;
           if (comm.rank() == 1) std::this_thread::sleep_for(milliseconds(1500));
           return reduce(comm, 10);
         });
       }},
      {"circle_of_waits", "each rank receives from its neighbour, and nobody sends", Code::timeout, kEither,
       seconds(10),
       [] {
         return ranks(3, {{"TUTTI_TIMEOUT", "1s"}}, [](Communicator& comm) {
           float x = 1;
           return comm.recv({.output = &x, .count = 1, .peer = (comm.rank() + 1) % 3}).wait();
         });
       }},
  };
}

std::vector<Cause> mismatches() {
  const auto usual = [](Communicator& c, float* at) { return all_reduce(c, at, 100); };
  const auto of = [&](const char* name, const char* injected, const std::function<Work(Communicator&, float*)>& odd) {
    return Cause{std::string("mismatch_") + name,     injected, Code::mismatch, kEither, seconds(12),
                 [=] { return mismatch(usual, odd); }};
  };
  return {
      of("collective", "rank 2 calls all_gather where the others call all_reduce",
         [](Communicator& c, float* at) {
           return c.all_gather({at, at + 10000, 100});
         }),
      of("count", "rank 2 has one element more", [](Communicator& c, float* at) { return all_reduce(c, at, 101); }),
      of("type", "rank 2 has another type",
         [](Communicator& c, float* at) { return all_reduce(c, at, 100, DataType::i32); }),
      of("reduction", "rank 2 wants the maximum",
         [](Communicator& c, float* at) { return all_reduce(c, at, 100, DataType::f32, ReduceOp::max); }),
      of("order", "rank 2 makes a barrier first", [](Communicator& c, float*) { return c.barrier(); }),
      {"mismatch_root", "rank 2 thinks that rank 1 is the root", Code::mismatch, kEither, seconds(12),
       [] {
         return mismatch(
             [](Communicator& c, float* at) {
               return c.broadcast({at, at + 10000, 100, DataType::f32, 0});
             },
             [](Communicator& c, float* at) {
               return c.broadcast({at, at + 10000, 100, DataType::f32, 1});
             });
       }},
      {"mismatch_send_and_recv", "rank 1 receives 99 elements of the 100 that rank 0 sends", Code::mismatch, kEither,
       seconds(12),
       [] {
         return ranks(2, {{"TUTTI_TIMEOUT", "8s"}}, [](Communicator& comm) {
           std::vector<float> x(100);
           return last(comm, comm.rank() == 0 ? comm.send({x.data(), 100, DataType::f32, 1}).wait()
                                              : comm.recv({x.data(), 99, DataType::f32, 0}).wait());
         });
       }},
  };
}

// Listens on all addresses of this host, of both families.
class PortOfAll {
 public:
  PortOfAll() : descriptor_(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int no = 0;
    ::setsockopt(descriptor_, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    socklen_t bytes = sizeof address_;
    address_.sin6_family = AF_INET6;
    if (::bind(descriptor_, reinterpret_cast<sockaddr*>(&address_), bytes) != 0 || ::listen(descriptor_, 1) != 0 ||
        ::getsockname(descriptor_, reinterpret_cast<sockaddr*>(&address_), &bytes) != 0)
      throw std::runtime_error("no port");
  }
  ~PortOfAll() { ::close(descriptor_); }
  PortOfAll(const PortOfAll&) = delete;
  PortOfAll& operator=(const PortOfAll&) = delete;
  int port() const { return ntohs(address_.sin6_port); }

 private:
  const int descriptor_;
  sockaddr_in6 address_{};
};

std::vector<Cause> beginnings() {
  return {
      {"no_address", "an address that is none", Code::invalid_argument, -1, seconds(5),
       [] { return Statuses{alone(0, 2, "no address at all", seconds(1))}; }},
      {"wrong_address", "rank 1 looks for rank 0 at a port where nobody listens", Code::timeout, 0, seconds(8),
       [] { return Statuses{alone(1, 2, "127.0.0.1:" + std::to_string(unused_port()), milliseconds(700))}; }},
      {"missing_rank", "rank 1 of three never comes", Code::timeout, kEither, seconds(10),
       [] {
         const std::string address = fresh_address();
         return together({[=] { return alone(0, 3, address, milliseconds(800)); },
                          [=] { return alone(2, 3, address, milliseconds(5000)); }});
       }},
      {"duplicate_rank", "two processes are rank 1", Code::mismatch, kEither, seconds(10),
       [] {
         const std::string address = fresh_address();
         const auto second = [=] { return alone(1, 3, address, seconds(5)); };
         return together({[=] { return alone(0, 3, address, seconds(5)); }, second, second});
       }},
      {"other_rank_count", "rank 1 counts three ranks, rank 0 two", Code::mismatch, kEither, seconds(10),
       [] {
         const std::string address = fresh_address();
         const auto second = [=] { return alone(1, 3, address, seconds(5)); };
         return together({[=] { return alone(0, 2, address, seconds(5)); }, second});
       }},
      {"other_settings", "rank 1 has another TUTTI_SEGMENT", Code::mismatch, kEither, seconds(10),
       [] {
         const std::string address = fresh_address();
         Child other([=] {
           const Environment environment(Settings{{"TUTTI_SEGMENT", "64K"}});
           return alone(1, 2, address, seconds(5)).code() == Code::mismatch ? 0 : 1;
         });
         Statuses out{alone(0, 2, address, seconds(5))};
         if (other.exit_code() != 0) out.emplace_back(Code::internal, "the other one saw no mismatch");
         return out;
       }},
      {"wrong_key", "rank 1 has another job key", Code::timeout, kEither, seconds(10),
       [] {
         const std::string address = fresh_address();
         const auto second = [=] { return alone(1, 2, address, milliseconds(900), "another"); };
         return Statuses{together({[=] { return alone(0, 2, address, milliseconds(900)); }, second})[0]};
       }},
      {"port_taken", "another process listens at rank 0's port", Code::network, -1, seconds(8),
       [] {
         const Listening other;
         return Statuses{alone(0, 2, other.address(), seconds(2))};
       }},
      {"no_port_of_the_range", "other processes listen on all ports of TUTTI_PORT_RANGE", Code::network, -1, seconds(8),
       [] {
         const PortOfAll taken;
         const Environment environment(Settings{{"TUTTI_PORT_RANGE", fmt::format("{0}-{0}", taken.port())}});
         return Statuses{alone(0, 2, "127.0.0.1:" + std::to_string(unused_port()), seconds(2))};
       }},
      {"no_such_interface", "TUTTI_INTERFACE names an interface that there is not", Code::invalid_argument, -1,
       seconds(8),
       [] {
         const Environment environment(Settings{{"TUTTI_INTERFACE", "nonsense0"}});
         return Statuses{alone(0, 2, "127.0.0.1:" + std::to_string(unused_port()), seconds(2))};
       }},
      {"stale_process_on_the_port", "a process that is no rank answers at rank 0's port", Code::timeout, 0, seconds(10),
       [] {
         const Listening web(Listening::Answers::http);
         return Statuses{alone(1, 2, web.address(), milliseconds(900))};
       }},
      {"mixed_versions", "a rank of another wire version is at rank 0's port", Code::timeout, 0, seconds(10),
       [] {
         const Listening other(Listening::Answers::other_version);
         return Statuses{alone(1, 2, other.address(), seconds(2))};
       }},
  };
}

std::vector<Cause> surroundings() {
  return {
      {"killed_while_starting", "rank 1 of three dies before all have met", Code::timeout, kEither, seconds(10),
       [] {
         const std::string address = fresh_address();
         Child dies([=] { return alone(1, 3, address, seconds(30)).ok(); });
         std::thread killer([&] {
           std::this_thread::sleep_for(milliseconds(300));
           dies.signal(SIGKILL);
         });
         Statuses out{alone(0, 3, address, milliseconds(1500))};
         killer.join();
         return out;
       }},
      {"strangers_at_start", "300 strangers knock while four ranks meet", Code::ok, -1, seconds(20),
       [] {
         const std::string address = "127.0.0.1:" + std::to_string(unused_port());
         Strangers knocking(address, 300);
         return together(
             {[=] { return alone(0, 2, address, seconds(15)); }, [=] { return alone(1, 2, address, seconds(15)); }});
       }},
      {"bad_setting", "a setting that cannot be read", Code::invalid_argument, -1, seconds(5),
       [] { return with_setting("TUTTI_TIMEOUT", "2 apples"); }},
      {"bad_algorithm", "a setting that names no algorithm", Code::invalid_argument, -1, seconds(5),
       [] { return with_setting("TUTTI_ALGO", "all_reduce:rings"); }},
      {"memory_limit_too_small", "a memory limit that nothing fits in", Code::invalid_argument, -1, seconds(5),
       [] { return with_setting("TUTTI_MEMORY_LIMIT", "64K"); }},
      {"encryption_without_key", "encryption without a secret", Code::invalid_argument, -1, seconds(5),
       [] {
         const Environment environment(Settings{{"TUTTI_ENCRYPT", "1"}});
         return Statuses{alone(0, 2, fresh_address(), seconds(1), "")};
       }},
      {"few_descriptors", "no more than five open files beyond those that it had", Code::out_of_resources, -1,
       seconds(20),
       [] { return with_limit(RLIMIT_NOFILE, 5, [] { return alone(0, 2, fresh_address(), seconds(2)); }); }},
      {"recorder_has_no_room", "the flight recorder's folder cannot be written", Code::ok, -1, seconds(10),
       [] {
         return ranks(2, {{"TUTTI_RECORDER", "/proc/nowhere"}}, [](Communicator& comm) { return reduce(comm, 100); });
       }},
      {"recorder_disk_full", "files may not grow: the flight recorder's disk is full", Code::ok, -1, seconds(20),
       [] {
         std::signal(SIGXFSZ, SIG_IGN);
         return with_limit(RLIMIT_FSIZE, 8 << 10, [] {
           const Statuses both =
               ranks(2, {{"TUTTI_TRANSPORT", "tcp"}}, [](Communicator& comm) { return reduce(comm, 100'000); });
           return both[0].ok() ? both[1] : both[0];
         });
       }},
  };
}

std::vector<Cause> buffers() {
  const Settings check{{"TUTTI_CHECK", "1"}};
  const auto of_rank_1 = [](const Settings& settings, const std::function<Work(Communicator&)>& bad) {
    return ranks(2, settings, [&](Communicator& comm) {
      float x[2] = {1, 1};
      if (comm.rank() == 1) return bad(comm).wait();
      Work work = comm.all_reduce({x, x + 1, 1});
      work.wait_for(milliseconds(100));                  // nothing was sent: rank 1 may call again, rightly
      return Status(Code::invalid_argument, "rank 0 waits for the right call");
    });
  };
  return {
      {"null_buffer", "a null pointer as input", Code::invalid_argument, -1, seconds(5),
       [=] {
         return of_rank_1({}, [](Communicator& c) {
           static float y;
           return c.all_reduce({nullptr, &y, 1});
         });
       }},
      {"overlap", "output overlaps input, and is not in place", Code::invalid_argument, -1, seconds(5),
       [=] {
         return of_rank_1({}, [](Communicator& c) {
           static float x[20];
           return c.all_reduce({x, x + 5, 10});
         });
       }},
      {"unmapped_buffer", "a buffer that goes on into unmapped memory, with TUTTI_CHECK=1", Code::invalid_argument, -1,
       seconds(5),
       [=] {
         void* two = ::mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
         ::munmap(static_cast<char*>(two) + 4096, 4096);
         auto out = of_rank_1(check, [=](Communicator& c) { return c.all_reduce({two, two, 2000}); });
         ::munmap(two, 4096);
         return out;
       }},
      {"read_only_output", "an output that may not be written, with TUTTI_CHECK=1", Code::invalid_argument, -1,
       seconds(5),
       [=] {
         static const std::array<float, 100> constant{1};
         return of_rank_1(check, [](Communicator& c) {
           static float x[100];
           return c.all_reduce({x, const_cast<float*>(constant.data()), 100});
         });
       }},
      {"used_after_destroy", "an operation on a communicator that was destroyed", Code::invalid_state, -1, seconds(5),
       [] {
         return ranks(2, {}, [](Communicator& comm) {
           comm.destroy();
           return comm.barrier().wait();
         });
       }},
      {"no_such_root", "a root that there is not", Code::invalid_argument, -1, seconds(5),
       [] {
         return ranks(2, {}, [](Communicator& comm) {
           float x = 0;
           return comm.broadcast({&x, &x, 1, DataType::f32, 2}).wait();
         });
       }},
  };
}

std::vector<Cause> wires() {
  return {
      {"bit_flip_on_the_wire", "a bit flips on a TCP connection", Code::ok, -1, seconds(20),
       [] { return on_the_wire(Fault::flip, {}); }},
      {"reset_link", "a TCP connection is reset in the middle of an operation", Code::ok, -1, seconds(20),
       [] { return on_the_wire(Fault::reset, {}); }},
      {"reset_link_of_three", "one of three TCP connections of a pair is reset", Code::ok, -1, seconds(20),
       [] {
         return on_the_wire(Fault::reset, {{"TUTTI_SOCKETS", "3"}});
       }},
      {"reset_link_for_good", "a TCP connection is reset, and none may be made again", Code::peer_lost, kEither,
       seconds(20),
       [] {
         return on_the_wire(Fault::reset, {{"TUTTI_LINK_TIMEOUT", "0"}}, kForEver);
       }},
      {"silent_link", "a TCP connection swallows everything", Code::ok, -1, seconds(30),
       [] { return on_the_wire(Fault::silent, {}); }},
      {"silent_link_of_three", "one of three TCP connections of a pair swallows everything", Code::ok, -1, seconds(30),
       [] {
         return on_the_wire(Fault::silent, {{"TUTTI_SOCKETS", "3"}});
       }},
      {"throttled_link", "a TCP connection moves 64 KB in 2 ms", Code::ok, -1, seconds(30),
       [] { return on_the_wire(Fault::slow, {}); }},
      {"reset_encrypted_link", "an encrypted TCP connection is reset", Code::ok, -1, seconds(20),
       [] {
         return on_the_wire(Fault::reset, {{"TUTTI_ENCRYPT", "1"}, {"TUTTI_JOB_KEY", "a secret"}});
       }},
      {"bit_flip_on_an_encrypted_wire", "a bit flips on an encrypted TCP connection", Code::ok, -1, seconds(20),
       [] {
         return on_the_wire(Fault::flip, {{"TUTTI_ENCRYPT", "1"}, {"TUTTI_JOB_KEY", "a secret"}});
       }},
  };
}

// A mismatch is told by whichever pair of ranks sees it first, and in its order.
// Of the ranks that agree any may be the one.
std::string seen_by_anybody(const std::string& text) {
  static const std::regex pair(
      R"((mismatch) \(rank \d+\): (.*)rank (\d) (\(HOST, pid PID\) called .*?), rank (\d) (\(HOST, pid PID\) called .*))");
  std::smatch found;
  if (!std::regex_match(text, found, pair)) return text;
  std::string first = "rank R " + found[4].str(), second = "rank " + found[5].str() + " " + found[6].str();
  if (found[3].str() > found[5].str())
    first = "rank R " + found[6].str(), second = "rank " + found[3].str() + " " + found[4].str();
  return found[1].str() + " (rank R): " + found[2].str() + first + ", " + second;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Cause& cause) { return out << cause.name; }

const std::vector<Cause>& causes() {
  static const std::vector<Cause> all = [] {
    std::vector<Cause> out;
    for (auto room : {deaths, mismatches, beginnings, surroundings, buffers, wires, poor_hosts})
      for (auto& cause : room()) out.push_back(std::move(cause));
    return out;
  }();
  return all;
}

std::string in_general(const Status& status) {
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  std::string text = status.to_string();
  const std::size_t end = std::min(text.rfind(" [TUTTI-"), text.size());
  const std::string code = text.substr(end);
  text.resize(end);
  for (std::size_t at = 0; *host && (at = text.find(host, at)) != std::string::npos;)
    text.replace(at, std::char_traits<char>::length(host), "HOST");
  const std::pair<const char*, const char*> kGeneral[] = {
      {R"(pids? \d+)", "pid PID"},
      {R"(@tutti[-\w]*)", "@NAME"},
      {R"((\d+\.\d+\.\d+\.\d+|\[[0-9a-f:]+\]):\d+)", "ADDRESS"},
      {R"(operation \d+)", "operation N"},
      {R"(0x[0-9a-f]+)", "POINTER"},
      {R"(TUTTI_PORT_RANGE=\d+-\d+)", "TUTTI_PORT_RANGE=PORTS"},
      {R"(it has: .*$)", "it has: ADDRESSES"},
      {R"(\(rank \d\): start-up with rank \d (.*) failed: cannot reach rank \d (.*): connect to .*; it offers)",
       "(rank R): start-up with rank R $1 failed: cannot reach rank R $2: connect to ADDRESS: WHY; it offers"},
      {R"(\b\d+(\.\d+)? (s|ms)\b)", "TIME"},
      {R"(it has made \d+)", "it has made N"},
      {R"(wire version \d+, this process \d+)", "wire version V+1, this process V"},
      {R"((look up host [^:]+): [A-Z][^.]*\.)", "$1: WHY."},
      {R"(\b\d+ connections)", "N connections"},
      {R"(held by [^;,\n]*)", "held by PROCESS"},
      {R"(peer_lost \(rank \d+\): rank \d+ (\(HOST, pid PID\): tcp ADDRESS -> ADDRESS: the connection is broken: ).*?( \[TUTTI-E\d+\])?$)",
       "peer_lost (rank R): rank R $1WHY$2"},
      {R"(timeout \(rank \d+\)(.*all of them answer and wait))", "timeout (rank R)$1"},
      {R"(; rank \d+ \(HOST, pid PID\) waits for [^;]*;)", "; rank R (HOST, pid PID) waits for ...;"},
  };
  for (const auto& [pattern, word] : kGeneral) text = std::regex_replace(text, std::regex(pattern), word);
  return seen_by_anybody(text) + code;
}

}  // namespace tutti::test
