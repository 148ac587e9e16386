// The kernel that carries a group's slices, on an emulated GPU, with the host as one more fiber: rows, slices and lanes of
// every shape, in orders drawn from a seed; a lane that the host does not serve holds up no other; and waits that are
// left out must show.
#include <gtest/gtest.h>
#include <tests/cuda/emulation.h>

#include <algorithm>
#include <array>

#include <kernels/cuda/carry_body.h>

namespace tutti::emulation {
namespace {

using kernels::cuda::Carry;
using Bytes = std::vector<std::byte>;

// A passage whose rows all go in and come out again, as the host has changed them: each byte one more.
struct Traveller {
  Traveller(std::mt19937_64& random, std::uint32_t first, std::byte* slots, std::uint64_t slot_bytes, std::uint32_t* words) {
    const auto count = std::uint32_t(1 + random() % 3);
    std::uint64_t at = random() % 5, sum = 0;
    for (std::uint32_t r = 0; r < count; ++r) {
      rows.push_back({at, random() % 4 == 0 ? 0 : random() % 300});
      at += rows.back().bytes + random() % 20;
      sum = std::max(sum, rows.back().bytes);
    }
    in.resize(at + 16), out.resize(at + 16, std::byte(0xee));
    for (auto& byte : in) byte = std::byte(random());
    passage.rows = rows.data(), passage.row_count = count;
    passage.in_end = passage.out_end = count;
    passage.each = slot_bytes / count / 16 * 16;
    passage.slices = std::uint32_t(std::max<std::uint64_t>(1, (sum + passage.each - 1) / passage.each));
    passage.first = first;
    passage.slots = slots, passage.slot_bytes = slot_bytes;
    passage.arrived = words, passage.done = words + 1;
  }
  bool right() const {
    Bytes expected(out.size(), std::byte(0xee));
    for (const Row& row : rows)
      for (std::uint64_t i = row.at; i < row.at + row.bytes; ++i) expected[i] = std::byte(std::uint8_t(in[i]) + 1);
    return out == expected;
  }
  std::vector<Row> rows;
  Bytes in, out;
  Passage passage;
};

struct Journey {
  Journey(std::uint64_t seed, std::size_t lane_count, const Grid& on, bool ignores = false) : random(seed) {
    constexpr std::uint64_t kSlot = 192;
    borders.push_back(0);
    memory.resize(lane_count), words.assign(lane_count, {});
    for (std::size_t l = 0; l < lane_count; ++l) {
      memory[l].resize(Passage::kSlots * kSlot / 16);
      std::uint32_t next = ignores ? 1 : std::uint32_t(-2);  // numbers wrap around
      words[l] = {next - 1, next - 1};
      for (std::uint64_t k = 1 + random() % 3; k > 0; --k) {
        travellers.push_back(std::make_unique<Traveller>(random, next, reinterpret_cast<std::byte*>(memory[l].data()), kSlot, words[l].data()));
        next += travellers.back()->passage.slices;
      }
      last.push_back(next - 1);
      borders.push_back(std::uint32_t(travellers.size()));
    }
    for (const auto& t : travellers) {
      passages.push_back(t->passage);
      passages.back().input = t->in.data(), passages.back().output = t->out.data();
    }
    emulator.ignores_acquire = ignores;
    carriage = {passages.data(), borders.data(), std::uint32_t(lane_count)};
    emulator.launch<Carry>(on, carriage);
  }
  // Serves lane `l`; not before `after` of another one has been served, where that is wanted.
  void serve(std::size_t l, const std::uint32_t* after = nullptr, std::uint32_t value = 0) {
    emulator.add({1, 1}, [this, l, after, value](Thread& thread) {
      while (after && thread.acquire(after) != value) thread.pause();
      for (std::uint32_t p = borders[l]; p < borders[l + 1]; ++p)
        for (std::uint32_t k = 0; k < passages[p].slices; ++k) {
          const std::uint32_t number = passages[p].first + k;
          while (std::int32_t(thread.acquire(words[l].data()) - number) < 0) thread.pause();
          std::byte* const slot = passages[p].slot(k);
          for (std::uint64_t i = 0; i < passages[p].offset(passages[p].row_count, k); ++i) slot[i] = std::byte(std::uint8_t(slot[i]) + 1);
          thread.release(words[l].data() + 1, number);
        }
    });
  }
  bool right() const {
    return std::all_of(travellers.begin(), travellers.end(), [](const auto& t) { return t->right(); });
  }
  struct alignas(16) Unit { std::byte bytes[16]; };
  std::mt19937_64 random;
  Emulator emulator{random()};
  std::vector<std::vector<Unit>> memory;
  std::vector<std::array<std::uint32_t, 2>> words;
  std::vector<std::uint32_t> borders, last;
  std::vector<std::unique_ptr<Traveller>> travellers;
  std::vector<Passage> passages;
  Carriage carriage;
};

TEST(Carry, TakesEverySliceInAndOut) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const std::size_t lanes = 1 + seed % 7;
    Journey journey(seed, lanes, {int(1 + seed % 3), 8});
    for (std::size_t l = 0; l < lanes; ++l) journey.serve(l);
    journey.emulator.run();
    EXPECT_TRUE(journey.right()) << "seed " << seed;
    for (std::size_t l = 0; l < lanes; ++l) EXPECT_EQ(journey.words[l][0], journey.last[l]) << "seed " << seed;
  }
}

// All lanes are one block's, and each is served only when the one behind it is through.
TEST(Carry, NoLaneWaitsForAnother) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    constexpr std::size_t kLanes = 5;
    Journey journey(seed, kLanes, {1, 8});
    for (std::size_t l = 0; l + 1 < kLanes; ++l) journey.serve(l, journey.words[l + 1].data() + 1, journey.last[l + 1]);
    journey.serve(kLanes - 1);
    journey.emulator.run();
    EXPECT_TRUE(journey.right()) << "seed " << seed;
  }
}

TEST(Carry, PlantedMissingWaitIsFound) {
  int wrong = 0;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    Journey journey(seed, 2, {1, 8}, true);
    for (std::size_t l = 0; l < 2; ++l) journey.serve(l);
    journey.emulator.run();
    wrong += !journey.right();
  }
  EXPECT_GT(wrong, 0);
}

}  // namespace
}  // namespace tutti::emulation
