// Brief: which programs are, what they compute over wires that can be looked at, and what they leave for an Execution.
#include "comm/brief.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <vector>

#include "algorithms/generate.h"

namespace tutti::comm {
namespace {

using algorithms::Request;
using transport::SegmentHeader;
using transport::Sent;

// One direction between two ranks.
struct Lane {
  std::deque<std::pair<SegmentHeader, std::vector<std::byte>>> cells;
  int room = 100;
};

class Ends final : public transport::Connection {
 public:
  Ends(Lane& out, Lane& in) : out_(out), in_(in) {}
  Sent send(const SegmentHeader& header, const std::byte* data, std::uint64_t) override {
    if (out_.room-- <= 0) return Sent::again;
    out_.cells.push_back({header, {data, data + header.bytes}});
    return Sent::done;
  }
  void expect(const SegmentHeader&, transport::Readiness, std::byte*) override {}
  std::size_t eager_bytes() const override { return ~std::size_t(0); }
  std::string describe() const override { return "lane"; }
  std::size_t glance_bytes() const override { return bytes; }
  const std::byte* glance(const SegmentHeader& message) override {
    if (in_.cells.empty()) return nullptr;
    const SegmentHeader& came = in_.cells.front().first;
    const bool same = came.key == message.key && came.bytes == message.bytes && came.call == message.call;
    return same ? in_.cells.front().second.data() : nullptr;
  }
  void take_glanced() override { in_.cells.pop_front(); }
  std::size_t bytes = Brief::kMostBytes;

 private:
  Lane &out_, &in_;
};

class World {
 public:
  explicit World(int ranks) : ranks_(ranks), wires_(std::size_t(ranks), std::vector<Wire>(std::size_t(ranks))) {
    for (int r = 0; r < ranks; ++r)
      for (int p = 0; p < ranks; ++p)
        if (p != r) {
          ends_.push_back(std::make_unique<Ends>(lanes_[{r, p}], lanes_[{p, r}]));
          wires_[std::size_t(r)][std::size_t(p)].connection = ends_.back().get();
        }
  }
  std::span<const Wire> of(int rank) const { return wires_[std::size_t(rank)]; }
  Lane& lane(int from, int to) { return lanes_[{from, to}]; }
  Ends& end(int rank, int peer) { return static_cast<Ends&>(*wires_[std::size_t(rank)][std::size_t(peer)].connection); }
  bool empty() const {
    return std::all_of(lanes_.begin(), lanes_.end(), [](const auto& lane) { return lane.second.cells.empty(); });
  }

 private:
  int ranks_;
  std::map<std::pair<int, int>, Lane> lanes_;
  std::vector<std::unique_ptr<Ends>> ends_;
  std::vector<std::vector<Wire>> wires_;
};

Request request_of(Collective what, int ranks, bool in_place, int root = 0) {
  Request request;
  request.collective = what;
  request.rank_count = ranks;
  request.root = root;
  request.in_place = in_place;
  return request;
}

std::unique_ptr<Brief> brief_of(const Request& request, int rank, const char* algorithm, const Binding& shape) {
  const auto* generator = algorithms::find_generator(algorithm);
  if (!generator || !generator->refusal(request).empty()) return nullptr;
  return Brief::of(std::make_shared<Program>(compile(request, rank, algorithm, generator->generate(request, rank))),
                   shape);
}

Binding shape_of(Collective what, std::uint64_t count) {
  Binding shape;
  shape.type = DataType::i32;
  shape.vector = count;
  shape.in.each = shape.out.each = count;
  shape.header.key = {7, 9, 0};
  shape.header.call = std::uint64_t(what);
  return shape;
}

using Numbers = std::vector<std::int32_t>;


Numbers random_numbers(std::size_t count, std::mt19937& dice) {
  Numbers out(count);
  for (auto& n : out) n = std::int32_t(dice());
  return out;
}

// Whose input, and whose output, is a block for each rank.
bool takes_all(Collective what) {
  return what == Collective::reduce_scatter || what == Collective::scatter || what == Collective::all_to_all;
}
bool gives_all(Collective what) {
  return what == Collective::all_gather || what == Collective::gather || what == Collective::all_to_all;
}

TEST(Brief, AllCollectivesOfTheDirectAlgorithm) {
  std::mt19937 dice(5);
  int seen = 0;
  for (const Collective what :
       {Collective::all_reduce, Collective::all_gather, Collective::reduce_scatter, Collective::broadcast,
        Collective::all_to_all, Collective::reduce, Collective::gather, Collective::scatter})
    for (int n = 1; n <= 6; ++n)
      for (const bool in_place : {false, true})
        for (const std::uint64_t count : {1, 2, 5, 100}) {
          const int root = int(dice() % unsigned(n));
          const std::size_t in_count = takes_all(what) ? count * std::size_t(n) : count;
          const std::size_t out_count = gives_all(what) ? count * std::size_t(n) : count;
          World world(n);
          std::vector<Numbers> inputs, memory;
          std::vector<Binding> bindings;
          std::vector<std::unique_ptr<Brief>> briefs;
          for (int r = 0; r < n; ++r) {
            inputs.push_back(random_numbers(in_count, dice));
            const std::size_t at = in_count == out_count ? 0 : count * std::size_t(r);
            memory.emplace_back(in_place ? std::max(in_count, out_count) : in_count + out_count, 0);
            const std::size_t in_at = in_place && gives_all(what) ? at : 0;
            const std::size_t out_at = !in_place ? in_count : takes_all(what) ? at : 0;
            std::copy(inputs.back().begin(), inputs.back().end(), memory.back().begin() + std::ptrdiff_t(in_at));
            Binding b = shape_of(what, count);
            b.input = reinterpret_cast<const std::byte*>(memory.back().data() + in_at);
            b.output = reinterpret_cast<std::byte*>(memory.back().data() + out_at);
            bindings.push_back(b);
            briefs.push_back(brief_of(request_of(what, n, in_place, root), r, "direct", b));
          }
          // Blocks of an all_to_all in place are set aside first; the root may have other steps than the rest.
          if (std::any_of(briefs.begin(), briefs.end(), [](const auto& b) { return !b; })) continue;
          ++seen;
          const auto name = [&] {
            return std::string(name_of(what)) + " n " + std::to_string(n) + (in_place ? " in place" : "") + " count " +
                   std::to_string(count);
          };
          for (int r = 0; r < n; ++r) {
            Brief& brief = *briefs[std::size_t(r)];
            ASSERT_TRUE(brief.fits(world.of(r)));
            brief.begin();
            ASSERT_TRUE(brief.send(world.of(r), bindings[std::size_t(r)])) << name();
          }
          for (int r = 0; r < n; ++r) {
            ASSERT_TRUE(briefs[std::size_t(r)]->look(world.of(r), bindings[std::size_t(r)])) << name();
            briefs[std::size_t(r)]->finish(world.of(r), bindings[std::size_t(r)]);
          }
          EXPECT_TRUE(world.empty()) << name();
          for (int r = 0; r < n; ++r) {
            const bool writes = r == root || (what != Collective::reduce && what != Collective::gather);
            const auto* out = reinterpret_cast<const std::int32_t*>(bindings[std::size_t(r)].output);
            for (std::size_t i = 0; writes && i < out_count; ++i) {
              const std::size_t block = i / count, k = i % count;
              std::uint32_t wanted = 0;
              for (int p = 0; p < n; ++p) {
                const auto& theirs = inputs[std::size_t(p)];
                if (what == Collective::all_reduce || what == Collective::reduce) wanted += std::uint32_t(theirs[i]);
                if (what == Collective::reduce_scatter) wanted += std::uint32_t(theirs[count * std::size_t(r) + i]);
              }
              if (what == Collective::broadcast) wanted = std::uint32_t(inputs[std::size_t(root)][i]);
              if (what == Collective::scatter)
                wanted = std::uint32_t(inputs[std::size_t(root)][count * std::size_t(r) + i]);
              if (what == Collective::all_gather || what == Collective::gather)
                wanted = std::uint32_t(inputs[block][k]);
              if (what == Collective::all_to_all) wanted = std::uint32_t(inputs[block][count * std::size_t(r) + k]);
              ASSERT_EQ(std::uint32_t(out[i]), wanted) << name() << " rank " << r << " element " << i;
            }
          }
        }
  EXPECT_GT(seen, 300);      // of 384: most are brief
}

TEST(Brief, WhatItIsNot) {
  const Request three = request_of(Collective::all_reduce, 3, false);
  EXPECT_NE(brief_of(three, 0, "direct", shape_of(Collective::all_reduce, Brief::kMostBytes / 2 / 4)), nullptr);
  EXPECT_EQ(brief_of(three, 0, "direct", shape_of(Collective::all_reduce, Brief::kMostBytes / 2 / 4 + 1)), nullptr) << "more bytes, to two peers";
  const Request eight = request_of(Collective::all_reduce, 8, false);
  EXPECT_NE(brief_of(eight, 0, "direct", shape_of(Collective::all_reduce, Brief::kAnyNumber / 4)), nullptr) << "small, to any number";
  EXPECT_EQ(brief_of(eight, 0, "direct", shape_of(Collective::all_reduce, Brief::kAnyNumber / 4 + 1)), nullptr);
  EXPECT_EQ(brief_of(three, 0, "ring", shape_of(Collective::all_reduce, 3)), nullptr)
      << "what it sends second has come first";
  Binding cut = shape_of(Collective::all_reduce, 100);
  cut.segment_limit = 64;
  EXPECT_EQ(brief_of(three, 0, "direct", cut), nullptr) << "several segments";
  Binding uneven = shape_of(Collective::all_gather, 0);
  uneven.out.counts = {1, 2, 3};
  uneven.out.offsets = {0, 1, 3};
  EXPECT_EQ(brief_of(request_of(Collective::all_gather, 3, false), 0, "direct", uneven), nullptr)
      << "sizes that the call does not tell";
}

TEST(Brief, NeedsWiresThatCanBeLookedAt) {
  World world(3);
  const auto brief =
      brief_of(request_of(Collective::all_reduce, 3, false), 1, "direct", shape_of(Collective::all_reduce, 2));
  EXPECT_TRUE(brief->fits(world.of(1)));
  world.end(1, 2).bytes = 8;       // its messages' size, and no more
  EXPECT_TRUE(brief->fits(world.of(1)));
  world.end(1, 2).bytes = 7;
  EXPECT_FALSE(brief->fits(world.of(1)));
}

TEST(Brief, TellsHowFarItCame) {
  for (int room = 0; room <= 3; ++room) {
    World world(4);
    const Binding shape = shape_of(Collective::all_reduce, 2);
    const Numbers input = {1, 2};
    Numbers output(2);
    Binding b = shape;
    b.input = reinterpret_cast<const std::byte*>(input.data());
    b.output = reinterpret_cast<std::byte*>(output.data());
    const auto brief = brief_of(request_of(Collective::all_reduce, 4, false), 0, "direct", shape);
    ASSERT_NE(brief, nullptr);
    brief->begin();
    EXPECT_EQ(brief->sent_to(0), 0u);
    const auto& peers = brief->program()->steps[0].step.peers;
    for (std::size_t k = std::size_t(room); k < peers.size(); ++k) world.lane(0, peers[k]).room = 0;
    EXPECT_EQ(brief->send(world.of(0), b), room == 3);
    EXPECT_EQ(brief->sent_to(0), std::uint32_t(room));
    EXPECT_EQ(brief->sent_to(1), 0u) << "a step that receives";
    EXPECT_FALSE(brief->look(world.of(0), b)) << "nobody has sent";
    // The next one knows nothing of it.
    brief->begin();
    EXPECT_EQ(brief->sent_to(0), 0u);
  }
}

}  // namespace
}  // namespace tutti::comm
