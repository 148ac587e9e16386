#include "tests/sim/seeds.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <optional>

namespace tutti::sim {

namespace {
std::optional<std::uint64_t> asked_for;
}

std::vector<std::uint64_t> seeds(std::uint64_t count) {
  if (asked_for) return {*asked_for};
  std::vector<std::uint64_t> all(count);
  std::iota(all.begin(), all.end(), std::uint64_t{1});
  return all;
}

bool whole_range() { return !asked_for; }

}  // namespace tutti::sim

// In place of gtest's own, for --seed.
int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  for (int i = 1; i < argc; ++i) {
    char* end = nullptr;
    const bool known = std::strcmp(argv[i], "--seed") == 0 && i + 1 < argc;
    if (known) tutti::sim::asked_for = std::strtoull(argv[++i], &end, 10);
    if (known && end != argv[i] && *end == '\0') continue;
    std::fprintf(stderr, "%s: want --seed NUMBER, not \"%s\"\n", argv[0], argv[i]);
    return 2;
  }
  return RUN_ALL_TESTS();
}
