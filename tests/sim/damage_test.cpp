// TUTTI_CHECK=1: bits that flip where nothing can be sent again end in one verdict that names rank and step; no wrong
// result is ever handed out as a right one.
#include <gmock/gmock.h>

#include <cstring>
#include <fstream>

#include "tests/sim/rough_crew.h"
#include "tests/sim/seeds.h"
#include "transport/shm/layout.h"

namespace tutti::sim {
namespace {

using testing::HasSubstr;
using transport::shm::Cell;
using transport::shm::LanePair;

// All memory that ranks of this process share by memfd: lanes are told from outboxes by their size.
std::vector<std::pair<std::byte*, std::size_t>> shared_memories(std::size_t bytes) {
  std::vector<std::pair<std::byte*, std::size_t>> out;
  std::set<std::string> seen;                     // mapped at both ends: once is enough
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    unsigned long from = 0, to = 0;
    char inode[32] = "";
    if (line.find("/memfd:tutti") == std::string::npos ||
        std::sscanf(line.c_str(), "%lx-%lx %*s %*s %*s %31s", &from, &to, inode) != 3)
      continue;
    if (to - from >= bytes && to - from < bytes + 4096 && seen.insert(inode).second)
      out.emplace_back(reinterpret_cast<std::byte*>(from), to - from);
  }
  return out;
}

// Cells that were filled and not looked at yet.
std::vector<Cell*> waiting_cells() {
  std::vector<Cell*> out;
  for (const auto& [at, bytes] : shared_memories(sizeof(LanePair))) {
    auto* pair = reinterpret_cast<LanePair*>(at);
    for (auto& lane : pair->lanes) {
      const std::uint32_t consumed = lane.consumed.load();
      for (std::uint32_t i = 0; i < transport::shm::kCells; ++i) {
        Cell& cell = lane.cells[(consumed + i) % transport::shm::kCells];
        if (cell.sequence.load() == consumed + i + 1) out.push_back(&cell);
      }
    }
  }
  return out;
}

// One bit of the cell's header or payload, or of the slots that it may point to.
void flip_in(Cell& cell, Dice& dice) {
  constexpr std::size_t kFrom = sizeof cell.sequence;
  auto* bytes = reinterpret_cast<std::byte*>(&cell);
  const std::byte bit{static_cast<unsigned char>(1u << dice.below(8))};
  if (cell.slot != transport::shm::kNoSlot && dice.chance(0.5)) {
    const std::size_t at = transport::shm::slot_offset(cell.slot) + dice.below(cell.bytes);
    for (const auto& [outbox, size] : shared_memories(transport::shm::kOutboxBytes)) outbox[at] ^= bit;
    return;
  }
  const std::size_t used = offsetof(Cell, payload) - kFrom + (cell.slot == transport::shm::kNoSlot ? cell.bytes : 0);
  bytes[kFrom + dice.below(used)] ^= bit;
}

TEST(SimDamage, AFlippedBitInSharedMemoryIsAlwaysFoundAndNamed) {
  int flips = 0, with_step = 0;
  for (const std::uint64_t seed : seeds(60)) {
    CrewOptions options = rough_crew(seed, 256 << 10);
    options.hosts = 1;
    options.settings.transport = "auto";
    options.settings.check = true;
    options.settings.timeout = seconds{20};
    options.exchanges = kForEver;
    Crew crew(seed, options);
    ASSERT_TRUE(crew.assemble()) << crew.report();
    Dice& dice = crew.world.dice();
    crew.world.run_for(dice.up_to(milliseconds{1}));
    const auto over = [&] { return crew.all([](const CrewRank& rank) { return rank.over(); }); };
    std::vector<Cell*> cells;
    crew.world.run_until([&] { return over() || !(cells = waiting_cells()).empty(); }, seconds{30});
    if (cells.empty()) continue;
    flip_in(*cells[dice.below(cells.size())], dice);
    ++flips;
    EXPECT_TRUE(crew.run_until_over(seconds{60})) << crew.report();
    for (int r = 0; r < crew.count(); ++r) {
      EXPECT_EQ(crew.rank(r).wrong, 0) << crew.report();
      ASSERT_TRUE(crew.rank(r).verdict) << crew.report();
      EXPECT_TRUE(crew.rank(r).verdict->code() == Code::damaged || crew.rank(r).verdict->code() == Code::network)
          << crew.report();
      EXPECT_GE(crew.rank(r).verdict->culprit(), 0) << crew.report();
    }
    with_step += crew.rank(0).verdict->text().find("step ") != std::string::npos;
    ASSERT_FALSE(testing::Test::HasFailure()) << crew.world.replay_line();
  }
  if (!whole_range()) return;
  EXPECT_GT(flips, 45) << "the test must reach what it is about";
  EXPECT_GT(with_step, flips / 2) << "most leave a header that tells the step";
}

// Without checksums on the wire the payload of one rank is changed: the results' checksums tell.
TEST(SimDamage, AResultThatDiffersOnOneRankIsNotHandedOut) {
  int found = 0;
  for (const std::uint64_t seed : seeds(150)) {
    CrewOptions options = rough_crew(seed, 256 << 10);
    options.hosts = options.ranks;
    options.settings.transport = "tcp";
    options.settings.sockets = 1;
    options.settings.crc = false;
    options.settings.check = true;
    options.exchanges = 10;
    const int ranks = options.ranks;
    const std::size_t count = bearable_bytes(options.world, 64 << 10) / 4;
    options.agenda = [=](int, int index) {
      return Exchange{.what = index % 2 ? Collective::broadcast : Collective::all_gather,
                      .count = count,
                      .root = index % ranks,
                      .salt = std::uint64_t(index),
                      .ranks = ranks};
    };
    Crew crew(seed, options);
    ASSERT_TRUE(crew.assemble()) << crew.report();
    Dice& dice = crew.world.dice();
    const auto over = [&] { return crew.all([](const CrewRank& rank) { return rank.over(); }); };
    for (int i = 0; i < 20 && !over(); ++i) {
      crew.world.run_until(over, dice.up_to(milliseconds{2}));
      const auto pairs = connected_pairs(crew);
      if (pairs.empty()) continue;
      const auto [a, b] = pairs[dice.below(pairs.size())];
      const auto wires = crew.data_wires(a, b);
      crew.world.flip_after(wires[dice.below(wires.size())], static_cast<int>(dice.below(2)), dice.below(count * 4),
                            std::byte(1 << dice.below(8)));
    }
    crew.run_until_over(seconds{300});
    bool any = false;
    for (int r = 0; r < crew.count(); ++r) {
      EXPECT_EQ(crew.rank(r).wrong, 0) << crew.report();
      if (!crew.rank(r).verdict) continue;
      any = true;
      EXPECT_EQ(crew.rank(r).verdict->code(), Code::damaged) << crew.report();
      EXPECT_THAT(crew.rank(r).verdict->text(), HasSubstr("not the same on all ranks")) << crew.report();
      EXPECT_GE(crew.rank(r).verdict->culprit(), 0);
    }
    found += any;
    ASSERT_FALSE(testing::Test::HasFailure()) << crew.world.replay_line();
  }
  if (!whole_range()) return;
  EXPECT_GT(found, 60) << "the test must reach what it is about";
}

TEST(SimDamage, CheckingHarmsNothingInRoughWorlds) {
  for (const std::uint64_t seed : seeds(100)) {
    CrewOptions options = rough_crew(seed, 256 << 10);
    options.settings.check = true;
    options.exchanges = 8;
    Crew crew(seed, options);
    ASSERT_TRUE(crew.assemble()) << crew.report();
    crew.run_until_over(seconds{300});
    expect_right(crew);
    ASSERT_FALSE(testing::Test::HasFailure()) << crew.world.replay_line();
  }
}

}  // namespace
}  // namespace tutti::sim
