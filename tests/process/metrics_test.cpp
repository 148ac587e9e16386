// TUTTI_METRICS: what a scraper of this host reads while a job runs.
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <regex>
#include <sstream>

#include "tests/process/strangers.h"
#include "tests/process/world.h"

namespace tutti::test {
namespace {

using testing::HasSubstr;

std::string asked(int fd, const sockaddr* to, socklen_t bytes, const std::string& request) {
  std::string out;
  if (::connect(fd, to, bytes) == 0 && ::send(fd, request.data(), request.size(), MSG_NOSIGNAL) == ssize_t(request.size())) {
    char buffer[4096];
    for (ssize_t got; (got = ::read(fd, buffer, sizeof buffer)) > 0;) out.append(buffer, std::size_t(got));
  }
  ::close(fd);
  return out;
}

std::string ask_port(int port, const std::string& request) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(std::uint16_t(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return asked(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), reinterpret_cast<const sockaddr*>(&to), sizeof to, request);
}

std::string ask_name(const std::string& name, const std::string& request) {
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  std::memcpy(to.sun_path + 1, name.data(), name.size());
  return asked(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), reinterpret_cast<const sockaddr*>(&to),
               socklen_t(offsetof(sockaddr_un, sun_path) + 1 + name.size()), request);
}

double value_of(const std::string& text, const std::string& name) {
  std::smatch found;
  return std::regex_search(text, found, std::regex("\n" + name + R"re(\{rank="\d+"\} ([^\n]+)\n)re")) ? std::stod(found[1]) : -1;
}

void reduce_ten_times(World& world) {
  world.run([](Communicator& comm) {
    std::vector<float> x(1000, 1), y(1000);
    for (int i = 0; i < 10; ++i) ASSERT_TRUE(comm.all_reduce({x.data(), y.data(), x.size()}).wait().ok());
  });
}

TEST(Metrics, APortServesPrometheusText) {
  const int port = unused_port();
  World world(2, {{"TUTTI_TRANSPORT", "tcp"}, {"TUTTI_METRICS", std::to_string(port)}});
  reduce_ten_times(world);
  for (int rank = 0; rank < 2; ++rank) {
    const std::string text = ask_port(port + rank, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_THAT(text, testing::StartsWith("HTTP/1.0 200 OK\r\n"));
    EXPECT_THAT(text, HasSubstr("rank=\"" + std::to_string(rank) + "\""));
    EXPECT_EQ(value_of(text, "tutti_operations_completed_total"), 10);
    EXPECT_EQ(value_of(text, "tutti_operations_failed_total"), 0);
    EXPECT_EQ(value_of(text, "tutti_operations_pending"), 0);
    EXPECT_GT(value_of(text, "tutti_tcp_sent_bytes_total"), 10 * 1000);
    EXPECT_GT(value_of(text, "tutti_memory_bytes"), 1000);
    const std::string link = "{rank=\"" + std::to_string(rank) + "\",peer=\"" + std::to_string(1 - rank) + "\"} ";
    EXPECT_THAT(text, HasSubstr("\ntutti_link_resent_frames_total" + link));
    EXPECT_THAT(text, testing::ContainsRegex("\ntutti_link_info.rank=\"[01]\",peer=\"[01]\",way=\"tcp [0-9.:]+ -> [0-9.:]+ [^\"]*\". 1\n"));
    EXPECT_THAT(text, HasSubstr("\ntutti_link_retransmitted_segments_total" + link));
    // Each value is told of.
    std::istringstream lines(text.substr(text.find("\r\n\r\n") + 4));
    std::string help, type, value;
    while (std::getline(lines, help) && std::getline(lines, type) && std::getline(lines, value)) {
      EXPECT_THAT(help, testing::StartsWith("# HELP tutti_"));
      EXPECT_THAT(type, testing::MatchesRegex("# TYPE tutti_[a-z_]+ (counter|gauge)"));
      EXPECT_THAT(value, testing::MatchesRegex("tutti_[a-z_]+\\{rank=\"[0-9]+\"(,peer=\"[0-9]+\")?(,way=\"[^\"]+\")?\\} [0-9.e+]+"));
    }
  }
  EXPECT_THAT(ask_port(port, "GET /secrets HTTP/1.1\r\n\r\n"), testing::StartsWith("HTTP/1.0 404"));
  EXPECT_THAT(ask_port(port, std::string(5000, 'x')), testing::Not(HasSubstr("200 OK")));
  reduce_ten_times(world);
  EXPECT_EQ(value_of(ask_port(port, "GET /metrics HTTP/1.0\r\n\r\n"), "tutti_operations_completed_total"), 20);
}

TEST(Metrics, ANameServesItToo) {
  World world(2, {{"TUTTI_METRICS", "@tutti-metrics-" + std::to_string(::getpid())}});
  reduce_ten_times(world);
  const std::string text = ask_name("tutti-metrics-" + std::to_string(::getpid()) + "-1", "GET /metrics HTTP/1.1\r\n\r\n");
  EXPECT_EQ(value_of(text, "tutti_operations_completed_total"), 10);
}

}  // namespace
}  // namespace tutti::test
