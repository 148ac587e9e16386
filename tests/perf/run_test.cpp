// The programs as people start them: real ranks, exit statuses, the table's shape, the files.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

struct Ended {
  int status = -1;  // exit status, or 128 + signal
  std::string out, err;
};

std::string slurp(int fd) {
  std::string text;
  char buffer[4096];
  for (ssize_t got; (got = read(fd, buffer, sizeof buffer)) > 0;) text.append(buffer, std::size_t(got));
  return text;
}

std::string temporary(const std::string& name) {
  return testing::TempDir() + "/tutti_perf_" + std::to_string(getpid()) + "_" + name;
}

// A program of build/bin with its output in files (pipes could fill while nobody reads).
class Started {
 public:
  Started(const std::string& program, std::vector<std::string> args, std::vector<std::string> environment = {}) {
    args.insert(args.begin(), std::string(TUTTI_BINARY_DIR) + "/bin/" + program);
    environment.insert(environment.end(), {"PATH=/usr/bin:/bin", "SECRET_OF_THE_TEST=s3cr3t"});
    out_ = open(out_file_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    err_ = open(err_file_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    process_ = fork();
    if (process_ == 0) {
      dup2(out_, 1), dup2(err_, 2);
      execve(args[0].c_str(), pointers(args).data(), pointers(environment).data());
      _exit(126);
    }
  }
  pid_t process() const { return process_; }
  Ended end() {
    int status = 0;
    waitpid(process_, &status, 0);
    lseek(out_, 0, SEEK_SET), lseek(err_, 0, SEEK_SET);
    Ended ended{WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status), slurp(out_), slurp(err_)};
    close(out_), close(err_);
    std::filesystem::remove(out_file_), std::filesystem::remove(err_file_);
    return ended;
  }

 private:
  static std::vector<char*> pointers(std::vector<std::string>& texts) {
    std::vector<char*> result;
    for (std::string& text : texts) result.push_back(text.data());
    result.push_back(nullptr);
    return result;
  }
  pid_t process_ = -1;
  static std::string next_file() {
    static int number = 0;
    return temporary("output" + std::to_string(number++));
  }
  const std::string out_file_ = next_file(), err_file_ = next_file();
  int out_ = -1, err_ = -1;
};

Ended run(const std::string& program, std::vector<std::string> args, std::vector<std::string> environment = {}) {
  return Started(program, std::move(args), std::move(environment)).end();
}

std::vector<std::vector<std::string>> rows_of(const std::string& table) {
  std::vector<std::vector<std::string>> rows;
  std::istringstream lines(table);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    rows.emplace_back(std::istream_iterator<std::string>(words), std::istream_iterator<std::string>());
  }
  return rows;
}

nlohmann::json json_of(const std::string& file) {
  std::ifstream in(file);
  return nlohmann::json::parse(in);
}

struct Program {
  const char* name;
  const char *op, *root;
  double factor3;  // busbw / algbw for 3 ranks
  bool blocks;     // a size is shared out among the ranks
};
class Programs : public testing::TestWithParam<Program> {};

TEST_P(Programs, MeasureAndCheckASweep) {
  const Program& p = GetParam();
  const std::string json = temporary("sweep.json");
  const Ended ended =
      run(p.name, {"-b", "384", "-e", "393216", "-f", "32", "-g", "3", "-n", "5", "-w", "1", "--json", json});
  ASSERT_EQ(ended.status, 0) << ended.err << ended.out;
  const auto rows = rows_of(ended.out);
  ASSERT_EQ(rows.size(), 3u);
  for (const auto& row : rows) {
    ASSERT_EQ(row.size(), 15u);
    EXPECT_EQ(row[2], "float");
    EXPECT_EQ(row[3], p.op);
    EXPECT_EQ(row[4], p.root);
    EXPECT_EQ(row[8], "0");
    EXPECT_EQ(row[12], std::string(p.name) == "sendrecv_perf" ? "N/A" : "0");
  }
  EXPECT_EQ(rows[0][0], "384");
  EXPECT_EQ(rows[0][1], p.blocks ? "32" : "96");
  EXPECT_THAT(ended.out, HasSubstr("# Out of bounds values : 0 OK\n"));
  EXPECT_THAT(ended.out, ContainsRegex("# Avg bus bandwidth    : [0-9]"));
  const nlohmann::json record = json_of(json);
  EXPECT_EQ(record.at("ranks"), 3);
  for (const auto& result : record.at("results")) {
    const auto& figures = result.at("out_of_place");
    EXPECT_GT(figures.at("time_us"), 0.0);
    EXPECT_LE(figures.at("p50_us"), figures.at("p99_us"));
    EXPECT_NEAR(figures.at("busbw").get<double>(), p.factor3 * figures.at("algbw").get<double>(), 1e-9);
    const double bytes = result.at("bytes");
    EXPECT_NEAR(figures.at("algbw").get<double>() * figures.at("time_us").get<double>() * 1e3, bytes, 1e-6 * bytes);
    EXPECT_FALSE(result.at("algorithm").get<std::string>().empty());
    EXPECT_FALSE(result.at("transport").get<std::string>().empty());
  }
  std::filesystem::remove(json);
}
INSTANTIATE_TEST_SUITE_P(Run, Programs,
                         testing::Values(Program{"all_reduce_perf", "sum", "-1", 4.0 / 3, false},
                                         Program{"all_gather_perf", "none", "-1", 2.0 / 3, true},
                                         Program{"reduce_scatter_perf", "sum", "-1", 2.0 / 3, true},
                                         Program{"broadcast_perf", "none", "0", 1, false},
                                         Program{"reduce_perf", "sum", "0", 1, false},
                                         Program{"alltoall_perf", "none", "-1", 2.0 / 3, true},
                                         Program{"gather_perf", "none", "0", 2.0 / 3, true},
                                         Program{"scatter_perf", "none", "0", 2.0 / 3, true},
                                         Program{"sendrecv_perf", "none", "-1", 1, false}),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(Run, AllTypesAndReductionsAreRight) {
  const Ended ended =
      run("all_reduce_perf", {"-b", "4000", "-e", "4000", "-g", "3", "-n", "1", "-w", "0", "-d", "all", "-o", "all"});
  EXPECT_EQ(ended.status, 0) << ended.err << ended.out;
  EXPECT_EQ(rows_of(ended.out).size(), 72u);
}
TEST(Run, EveryRootIsRight) {
  const Ended ended = run("reduce_perf", {"-b", "4K", "-e", "4K", "-g", "3", "-n", "1", "-r", "all"});
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(rows_of(ended.out).size(), 3u);
}
TEST(Run, RandomInputsStayWithinTheirBound) {
  const Ended ended =
      run("all_reduce_perf", {"-b", "64K", "-e", "64K", "-g", "2", "-n", "1", "-d", "half", "--check", "random"});
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(ended.out, ContainsRegex("# Max error / bound    : 0\\.[0-9]+ OK"));
}
TEST(Run, RanksAsThreads) {
  const Ended ended = run("all_reduce_perf", {"-b", "1K", "-e", "1K", "-g", "2", "-t", "2", "-n", "5"});
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("#  Rank  3 "));
}
TEST(Run, WithoutRanksItSaysWhatItChose) {
  const Ended ended = run("all_reduce_perf", {"-b", "8", "-e", "8", "-n", "2"});
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(ended.out, ContainsRegex("# [0-9]+ ranks on this host: one a core, at least 2"));
  EXPECT_THAT(ended.out, HasSubstr("#  Rank  1 "));
}
TEST(Run, AggregatedBlockedUnalignedAndEmpty) {
  const Ended ended = run("all_reduce_perf", {"-b", "0", "-e", "64", "-f", "8", "-g", "2", "-n", "3",
                                              "-m", "4", "-z", "3",  "-u", "1", "-c", "2", "-N", "2"});
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(rows_of(ended.out).size(), 6u);
  EXPECT_THAT(ended.out, HasSubstr("# Cycle 2 of 2"));
}
TEST(Run, OptionalColumns) {
  const Ended ended =
      run("all_reduce_perf", {"-b", "8", "-e", "8", "-g", "2", "-n", "9", "-I", "1", "-S", "1", "-C", "1", "-M", "1"});
  EXPECT_EQ(ended.status, 0) << ended.err;
  ASSERT_EQ(rows_of(ended.out).size(), 1u);
  EXPECT_EQ(rows_of(ended.out)[0].size(), 15u + 12 + 2);
  EXPECT_THAT(ended.out, HasSubstr("cputime"));
  EXPECT_THAT(ended.out, ContainsRegex("# Memory usage         : Buffers 32 \\| Library [1-9]"));
}
TEST(Run, FilesHoldTheRowsAndNotTheEnvironment) {
  const std::string json = temporary("files.json"), csv = temporary("files.csv"), svg = temporary("files.svg");
  const std::vector<std::string> args{"-b", "8", "-e", "64", "-f",    "2", "-g",     "2",
                                      "-n", "2", "-J", json, "--csv", csv, "--plot", svg};
  ASSERT_EQ(run("all_reduce_perf", args).status, 0);
  const nlohmann::json record = json_of(json);
  EXPECT_EQ(record.at("args"), nlohmann::json(args));
  EXPECT_EQ(record.at("results").size(), 4u);
  for (const char* field : {"version", "average_busbw", "ranks"}) EXPECT_TRUE(record.contains(field)) << field;
  EXPECT_THAT(record.dump(), Not(HasSubstr("s3cr3t")));
  std::ifstream lines(csv);
  EXPECT_EQ(std::count(std::istreambuf_iterator<char>(lines), {}, '\n'), 5);
  const Ended again = run("all_reduce_perf",
                          {"-b", "8", "-e", "8", "-g", "2", "-n", "2", "--plot", svg, "--plot-add", json + ",before"});
  ASSERT_EQ(again.status, 0) << again.err;
  std::ifstream drawing(svg);
  EXPECT_THAT(std::string(std::istreambuf_iterator<char>(drawing), {}), HasSubstr(">before</text>"));
  for (const std::string& file : {json, csv, svg}) std::filesystem::remove(file);
}
TEST(Run, TooLowABandwidthFails) {
  const std::vector<std::string> args{"-b", "8", "-e", "8", "-g", "2", "-n", "2"};
  std::vector<std::string> high = args, low = args;
  high.insert(high.end(), {"--min-busbw", "100000"});
  low.insert(low.end(), {"--min-busbw", "0"});
  const Ended failed = run("all_reduce_perf", high), passed = run("all_reduce_perf", low);
  EXPECT_EQ(failed.status, 7);
  EXPECT_THAT(failed.out, ContainsRegex("# Avg bus bandwidth    : .* FAILED"));
  EXPECT_EQ(passed.status, 0);
  EXPECT_THAT(passed.out, ContainsRegex("# Avg bus bandwidth    : .* OK"));
  EXPECT_EQ(run("all_reduce_perf", args, {"NCCL_TESTS_MIN_BW=100000"}).status, 7);
  EXPECT_EQ(run("all_reduce_perf", args, {"NCCL_TESTS_MIN_BW=fast"}).status, 2);
}
TEST(Run, UsageErrors) {
  for (const std::vector<std::string>& args : {std::vector<std::string>{"--nonsense"},
                                               {"-d", "flaot"},
                                               {"-G", "1"},
                                               {"-b", "2", "-e", "1"}})
    EXPECT_EQ(run("all_reduce_perf", args).status, 2) << args[0];
  EXPECT_EQ(run("broadcast_perf", {"-g", "2", "-r", "2"}).status, 2);
  EXPECT_EQ(run("all_reduce_perf", {"-h"}).status, 0);
  EXPECT_EQ(run("all_reduce_perf", {"-g", "2", "--json", "/nonexistent/x.json"}).status, 1);
}
TEST(Run, HalfALauncherIsAnError) {
  const Ended ended = run("all_reduce_perf", {"-b", "8", "-e", "8"}, {"RANK=0"});
  EXPECT_EQ(ended.status, 1);
  EXPECT_THAT(ended.err, HasSubstr("WORLD_SIZE"));
}
TEST(Run, ALaunchersWorldIsJoined) {
  const std::vector<std::string> args{"-b", "8", "-e", "8", "-n", "2"};
  const std::vector<std::string> world{
      "TUTTI_RANK_COUNT=2", "TUTTI_ADDRESS=@tutti-perf-test-" + std::to_string(getpid()), "TUTTI_JOB_KEY=test"};
  std::vector<std::string> first = world, second = world;
  first.push_back("TUTTI_RANK=0");
  second.push_back("TUTTI_RANK=1");
  Started rank1("all_reduce_perf", args, second);
  const Ended ended = run("all_reduce_perf", args, first);
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("# started by tutti"));
  EXPECT_EQ(rows_of(ended.out).size(), 1u);
  EXPECT_EQ(rank1.end().status, 0);
  const Ended refused = run("all_reduce_perf", {"-g", "2"}, first);
  EXPECT_EQ(refused.status, 2);
}

// The processes whose parent is `parent`.
std::vector<pid_t> children_of(pid_t parent) {
  std::ifstream in("/proc/" + std::to_string(parent) + "/task/" + std::to_string(parent) + "/children");
  return {std::istream_iterator<pid_t>(in), std::istream_iterator<pid_t>()};
}
// Waits until `parent` has `count` children, and watches them: a descriptor of a process becomes readable when it ends.
std::vector<int> watch_children(pid_t parent, std::size_t count) {
  std::vector<pid_t> children;
  while ((children = children_of(parent)).size() < count && kill(parent, 0) == 0) sched_yield();
  std::vector<int> watches;
  for (pid_t child : children) watches.push_back(int(syscall(434 /* pidfd_open */, child, 0)));
  return watches;
}
bool all_ended(const std::vector<int>& watches) {
  for (int watch : watches) {
    pollfd fd{watch, POLLIN, 0};
    if (poll(&fd, 1, 20000) != 1) return false;
    close(watch);
  }
  return true;
}

class Ending : public testing::TestWithParam<int> {};
TEST_P(Ending, OfTheStarterEndsAllRanks) {
  Started program("all_reduce_perf", {"-b", "8", "-e", "8", "-g", "3", "-N", "0"});
  const std::vector<int> watches = watch_children(program.process(), 3);
  ASSERT_EQ(watches.size(), 3u);
  kill(program.process(), GetParam());
  EXPECT_EQ(program.end().status, 128 + GetParam());
  EXPECT_TRUE(all_ended(watches));
}
INSTANTIATE_TEST_SUITE_P(Run, Ending, testing::Values(SIGINT, SIGTERM, SIGKILL));

TEST(Run, AKilledRankIsNamedAndEndsAll) {
  Started program("all_reduce_perf", {"-b", "8", "-e", "8", "-g", "3", "-N", "0"});
  const std::vector<int> watches = watch_children(program.process(), 3);
  ASSERT_EQ(watches.size(), 3u);
  const std::vector<pid_t> children = children_of(program.process());
  ASSERT_EQ(children.size(), 3u);
  kill(children[2], SIGKILL);
  const Ended ended = program.end();
  EXPECT_EQ(ended.status, 1);
  EXPECT_THAT(ended.err, HasSubstr("rank 2: was ended by signal 9"));
  EXPECT_TRUE(all_ended(watches));
}

}  // namespace
