// What the library keeps for a rank stays under TUTTI_MEMORY_LIMIT, by its own word and by the kernel's.
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <memory>
#include <fstream>
#include <string>

#include "tests/process/calls.h"
#include "tests/process/own_process.h"
#include "tests/process/world.h"

namespace tutti::test {
namespace {

constexpr std::size_t kMiB = std::size_t(1) << 20;
constexpr int kRanks = 4;

struct Limit {
  const char* text;
  std::size_t bytes;
  const char* transport;
  friend void PrintTo(const Limit& l, std::ostream* out) { *out << l.text << " over " << l.transport; }
};

class MemoryLimit : public ::testing::TestWithParam<Limit> {};

// Sizes around all slot and segment sizes, all collectives that need scratch.
void exercise(Communicator& comm) {
  for (const std::size_t bytes : {std::size_t(8), 3 * kMiB, std::size_t(300000), 5 * kMiB})
    for (int kind = 0; kind < kKindCount; ++kind) {
      Case test;
      test.kind = Kind(kind);
      test.count = bytes / 4 / (reduces(test.kind) || test.kind == Kind::broadcast ? 1 : kRanks) + 1;
      test.filling = {DataType::f32, ReduceOp::sum, bytes + std::size_t(kind)};
      ASSERT_EQ(tried(comm, test), "");
    }
}

TEST_P(MemoryLimit, IsKept) {
  const Limit& limit = GetParam();
  const std::string address = fresh_address();
  const auto rank = [&](int r) {
    const Environment environment({{"TUTTI_MEMORY_LIMIT", limit.text}, {"TUTTI_TRANSPORT", limit.transport}});
    // The buffers of a case are freed to the system; what remains is the library's.
    Communicator comm = joined(r, kRanks, address);
    const std::size_t before = resident_bytes();
    exercise(comm);
    if (::testing::Test::HasFailure()) return 1;
    if (comm.memory_bytes() > limit.bytes) return 2;
    // The kernel counts the peers' slots that this rank has read, too, and the allocator keeps some.
    malloc_trim(0);
    const std::size_t grown = resident_bytes() - std::min(before, resident_bytes());
    return grown <= limit.bytes * kRanks + 2 * kMiB ? 0 : 3;
  };
  std::vector<std::unique_ptr<Child>> children;
  for (int r = 0; r < kRanks; ++r) children.push_back(std::make_unique<Child>([&, r] { return rank(r); }));
  for (auto& child : children)
    EXPECT_EQ(child->exit_code(), 0) << "1: a wrong result, 2: more by its own word, 3: by the kernel's";
}

INSTANTIATE_TEST_SUITE_P(Limits, MemoryLimit,
                         ::testing::Values(Limit{"8M", 8 * kMiB, "shm"}, Limit{"8M", 8 * kMiB, "tcp"},
                                           Limit{"2M", 2 * kMiB, "shm"}, Limit{"2M", 2 * kMiB, "tcp"}),
                         [](const auto& at) { return std::string(at.param.text) + "_" + at.param.transport; });

}  // namespace
}  // namespace tutti::test
