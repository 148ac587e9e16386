// A rank that is killed for want of memory is reported so, by the kernel's
// count: needs the right to make a control group.
#include <csignal>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include "tests/said.h"
#include "tests/tools/launched.h"

namespace tutti::tools {
namespace {

using testing::AllOf;
using testing::HasSubstr;
namespace fs = std::filesystem;
constexpr long kLimitBytes = 64l << 20;

// A group of either version with a limit of memory and no swap. folder() is empty where we may not make one.
class SmallGroup {
 public:
  SmallGroup() {
    const bool old = fs::exists("/sys/fs/cgroup/memory");
    const fs::path folder =
        fs::path(old ? "/sys/fs/cgroup/memory" : "/sys/fs/cgroup") / ("tutti-test-" + std::to_string(getpid()));
    std::error_code failed;
    if (!fs::create_directory(folder, failed)) return;
    folder_ = folder;
    std::ofstream limit(folder / (old ? "memory.limit_in_bytes" : "memory.max"));
    limit << kLimitBytes << std::flush;
    limited_ = limit.good();
    std::ofstream(folder / (old ? "memory.memsw.limit_in_bytes" : "memory.swap.max"))
        << (old ? kLimitBytes : 0) << std::flush;
  }
  ~SmallGroup() { if (!folder_.empty()) rmdir(folder_.c_str()); }
  std::string folder() const { return limited_ ? folder_.string() : ""; }

 private:
  fs::path folder_;
  bool limited_ = false;
};

TEST(Memory, AVictimOfTheKernelIsNamedSo) {
  const SmallGroup group;
  if (group.folder().empty()) GTEST_SKIP() << "may not make a control group with a memory limit here";
  Launched job({"run", "-n", "2", "sh", "-c", "[ $RANK = 1 ] && exec tail /dev/zero; exec sleep 1000"},
               {.control_group = group.folder()});
  EXPECT_EQ(job.exit_status(), 128 + SIGKILL) << job.err();
  test::expect_said("killed_for_want_of_memory", "rank 1 takes more memory than its control group has",
                    job.last_error_line());
  EXPECT_THAT(job.last_error_line(),
              AllOf(HasSubstr("first failure: rank 1 on "), HasSubstr("was killed by SIGKILL (9); out of memory: ")));
  EXPECT_TRUE(job.nothing_left());
}

}  // namespace
}  // namespace tutti::tools
