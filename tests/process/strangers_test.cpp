// Ten thousand connections by strangers, at the doors of a job that runs: its
// results are right, and nothing stays behind.
#include "tests/process/own_process.h"
#include "tests/process/strangers.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <set>

#include "tests/process/world.h"

namespace tutti::test {
namespace {

// TCP ports where this process listens.
std::set<int> doors() {
  std::set<int> out;
  for (int fd = 3; fd < 1024; ++fd) {
    int listens = 0;
    socklen_t bytes = sizeof listens;
    sockaddr_in own{};
    socklen_t own_bytes = sizeof own;
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &bytes) != 0 || !listens) continue;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_bytes) == 0 && own.sin_family == AF_INET)
      out.insert(ntohs(own.sin_port));
  }
  return out;
}

// All ranks until `over`; returns all_reduces a second of rank 0.
double run_until(World& world, const std::function<bool()>& over) {
  std::atomic<bool> last{false};
  std::atomic<int> rounds{0};
  const auto start = std::chrono::steady_clock::now();
  world.run([&](Communicator& comm) {
    std::vector<float> x(1000, 1), y(1000);
    float more = 1;
    while (more != 0) {
      ASSERT_EQ(comm.all_reduce({x.data(), y.data(), x.size()}).wait(), Status());
      for (const float value : y) ASSERT_EQ(value, float(comm.rank_count()));
      if (comm.rank() == 0) ++rounds, more = over() ? 0 : 1;
      ASSERT_EQ(comm.broadcast({&more, &more, 1, DataType::f32, 0}).wait(), Status());
    }
  });
  return rounds / std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

TEST(StrangersAtTheDoor, TenThousandOfThemDisturbNoRunningJob) {
  World world(2, {{"TUTTI_TRANSPORT", "tcp"}});
  const auto until = [](std::chrono::milliseconds span) {
    return [end = std::chrono::steady_clock::now() + span] { return std::chrono::steady_clock::now() > end; };
  };
  const double before = run_until(world, until(std::chrono::milliseconds(300)));
  const std::set<int> ports = doors();
  ASSERT_GE(ports.size(), 2U);
  const std::size_t descriptors_before = descriptors();
  std::vector<std::unique_ptr<Strangers>> crowd;
  const auto start = std::chrono::steady_clock::now();
  for (const int port : ports)
    crowd.push_back(std::make_unique<Strangers>("127.0.0.1:" + std::to_string(port), 10'000 / int(ports.size())));
  const double during = run_until(
      world, [&] { return std::all_of(crowd.begin(), crowd.end(), [](const auto& s) { return s->over(); }); });
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  int connected = 0;
  for (const auto& strangers : crowd) connected += strangers->connected();
  EXPECT_GT(connected, 9000);
  run_until(world, until(std::chrono::milliseconds(300)));
  EXPECT_LE(descriptors(), descriptors_before + 20) << "strangers are let go";
  // Their own work is done here, too, and machines differ: told, not judged.
  RecordProperty("rounds_a_second_before", std::to_string(before));
  RecordProperty("rounds_a_second_during", std::to_string(during));
  std::printf("%d strangers in %.2f s: %.0f rounds a second, %.0f before\n", connected, seconds, during, before);
}

}  // namespace
}  // namespace tutti::test
