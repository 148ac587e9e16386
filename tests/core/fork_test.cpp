// What children of fork() find: descriptors, mappings, locks. Each looks for itself and says by its exit code what is wrong.
#include "core/fork.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace tutti {
namespace {

using testing::HasSubstr;

int in_child(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

bool is_nothing(int descriptor) {
  struct stat info {};
  return ::fstat(descriptor, &info) == 0 && S_ISCHR(info.st_mode) && info.st_rdev == makedev(1, 3);
}

bool is_socket(int descriptor) {
  struct stat info {};
  return ::fstat(descriptor, &info) == 0 && S_ISSOCK(info.st_mode);
}

std::array<int, 2> socket_pair() {
  std::array<int, 2> ends{};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  return ends;
}

TEST(Fork, KeptDescriptorsAreNothingInChildrenAndTheirChildren) {
  const auto [ours, others] = socket_pair();
  keep_from_children(ours);
  EXPECT_EQ(in_child([&, ours = ours, others = others] {
    if (!is_nothing(ours)) return 1;
    if ((::fcntl(ours, F_GETFD) & FD_CLOEXEC) == 0) return 2;
    if (!is_socket(others)) return 3;
    const int grandchild = in_child([&] { return is_nothing(ours) ? 0 : 4; });
    close_kept(ours);
    return grandchild;
  }), 0);
  EXPECT_EQ(::write(ours, "x", 1), 1);
  char byte = 0;
  EXPECT_EQ(::read(others, &byte, 1), 1);
  let_go(ours);
  EXPECT_EQ(in_child([ours = ours] { return is_socket(ours) ? 0 : 1; }), 0);
  ::close(ours);
  ::close(others);
}

TEST(Fork, APeerSeesTheEndOfAConnectionWhileAChildLives) {
  const auto [ours, peers] = socket_pair();
  const auto [leash, childs] = socket_pair();
  keep_from_children(ours);
  const pid_t child = ::fork();
  if (child == 0) {
    char byte;
    ::close(leash);
    while (::read(childs, &byte, 1) > 0) continue;
    ::_exit(0);
  }
  close_kept(ours);
  // As soon as the child runs.
  pollfd readable{peers, POLLIN, 0};
  EXPECT_EQ(::poll(&readable, 1, 60'000), 1) << "the child holds the other end";
  char byte = 0;
  EXPECT_EQ(::recv(peers, &byte, 1, MSG_DONTWAIT), 0);
  EXPECT_EQ(::waitpid(child, nullptr, WNOHANG), 0);
  for (const int descriptor : {peers, leash, childs}) ::close(descriptor);
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
}

TEST(Fork, NoForkComesBetweenOpeningAndKeeping) {
  std::atomic<bool> over{false};
  std::atomic<int> made{0};
  std::thread maker([&] {
    while (!over) {
      const int descriptor = kept_from_children([] { return ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0); });
      EXPECT_GE(descriptor, 0);
      ++made;
      close_kept(descriptor);
    }
  });
  while (made == 0) std::this_thread::yield();
  for (int i = 0; i < 50; ++i)
    EXPECT_EQ(in_child([] {
      for (int descriptor = 3; descriptor < 1024; ++descriptor)
        if (is_socket(descriptor)) return 1;
      return 0;
    }), 0);
  over = true;
  maker.join();
}

TEST(Fork, ErrnoIsThatOfOpening) {
  EXPECT_EQ(kept_from_children([] { return ::open("/no such file", O_RDONLY); }), -1);
  EXPECT_EQ(errno, ENOENT);
}

// A mapping of a locked file holds the lock as its descriptor does.
TEST(Fork, ALockedAndMappedFileIsFreeOnceItsProcessHasEnded) {
  std::string name = testing::TempDir() + "tutti-fork-XXXXXX";
  const int own = ::mkstemp(name.data());
  ASSERT_GE(own, 0);
  ASSERT_EQ(::ftruncate(own, 4096), 0);
  const auto [leash, childs] = socket_pair();
  EXPECT_EQ(in_child([&, leash = leash, childs = childs] {
    const int held = kept_from_children([&] { return ::open(name.c_str(), O_RDWR | O_CLOEXEC); });
    if (::flock(held, LOCK_EX | LOCK_NB) != 0) return 1;
    void* const map = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, held, 0);
    if (map == MAP_FAILED) return 2;
    keep_mapping_from_children(map, 4096);
    if (::fork() == 0) {
      char byte;
      ::close(leash);
      ::_exit(int(::read(childs, &byte, 1)));
    }
    return ::flock(own, LOCK_EX | LOCK_NB) == 0 ? 3 : 0;
  }), 0);
  EXPECT_EQ(::flock(own, LOCK_EX), 0);      // as soon as the grandchild runs; never, if it holds the lock
  for (const int descriptor : {leash, childs, own}) ::close(descriptor);
  ::unlink(name.c_str());
}

TEST(Fork, AnOriginKnowsItsProcess) {
  const Origin origin;
  EXPECT_TRUE(origin.here());
  EXPECT_EQ(in_child([&] {
    if (origin.here() || !Origin().here()) return 1;
    const Status status = origin.elsewhere("the lamp");
    for (const std::string& part : {std::to_string(::getpid()), std::to_string(::getppid()), std::string("the lamp belongs to")})
      if (status.text().find(part) == std::string::npos) return 2;
    return status.code() == Code::invalid_state ? 0 : 3;
  }), 0);
  EXPECT_TRUE(origin.here());
}

TEST(Fork, AChildHasItsOwnOfWhatIsPerProcess) {
  struct Counter {
    std::mutex mutex;
    int count = 0;
  };
  static PerProcess<Counter> counters;
  const std::lock_guard held((*counters).mutex);
  (*counters).count = 5;
  EXPECT_EQ(in_child([] {
    const std::lock_guard childs((*counters).mutex);      // would wait for ever for its parent's
    return (*counters).count++ == 0 && (*counters).count == 1 ? 0 : 1;
  }), 0);
  EXPECT_EQ((*counters).count, 5);
}

}  // namespace
}  // namespace tutti
