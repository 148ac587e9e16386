#include "comm/program.h"

#include <algorithm>
#include <utility>

#include "comm/dependencies.h"
#include "core/check.h"

namespace tutti::comm {
namespace {

using algorithms::Chunks;
using algorithms::Step;
using algorithms::StepKind;

void number_messages(Program& program) {
  const std::size_t ranks = std::size_t(program.request.rank_count);
  std::vector<std::uint32_t> sent(ranks, 0);
  std::vector<std::int32_t> last(ranks, -1);
  program.arrivals.resize(ranks);
  for (std::uint32_t i = 0; i < program.steps.size(); ++i) {
    ProgramStep& s = program.steps[i];
    const bool receives = s.step.kind == StepKind::recv || s.step.kind == StepKind::recv_reduce;
    if (!receives && s.step.kind != StepKind::send) continue;
    for (std::uint32_t k = 0; k < s.step.peers.size(); ++k) {
      const std::size_t peer = std::size_t(s.step.peers[k]);
      TUTTI_CHECK(peer < ranks);
      program.peers.push_back(int(peer));
      if (receives) {
        s.message.push_back(std::uint32_t(program.arrivals[peer].size()));
        program.arrivals[peer].push_back({i, k});
      } else {
        s.message.push_back(sent[peer]++);
        s.previous.push_back(std::exchange(last[peer], std::int32_t(i)));
      }
    }
  }
  std::sort(program.peers.begin(), program.peers.end());
  program.peers.erase(std::unique(program.peers.begin(), program.peers.end()), program.peers.end());
}

void find_ranges(Program& program) {
  for (const ProgramStep& s : program.steps)
    for (const Chunks& c : {s.step.source, s.step.target})
      if (c.count > 1 && c.first / program.slices != (c.first + c.count - 1) / program.slices)
        program.single_blocks = false;
}

std::uint32_t hash_of(const Program& program) {
  std::uint32_t hash = 2166136261u;   // FNV-1a
  const auto mix = [&hash](std::uint32_t value) {
    for (int i = 0; i < 4; ++i, value >>= 8) hash = (hash ^ (value & 255)) * 16777619u;
  };
  for (char c : program.algorithm) mix(std::uint32_t(c));
  mix(std::uint32_t(program.request.collective));
  mix(std::uint32_t(program.request.rank_count));
  for (const auto& level : program.request.levels)
    for (int group : level) mix(std::uint32_t(group));
  for (int rank : program.request.order) mix(std::uint32_t(rank));
  mix(std::uint32_t(program.request.channels));
  return hash ^ (hash >> 16);
}

}  // namespace

Program compile(const algorithms::Request& request, int rank, std::string algorithm, algorithms::Schedule schedule) {
  Program program;
  program.request = request;
  program.rank = rank;
  program.algorithm = std::move(algorithm);
  program.blocks = schedule.blocks;
  program.slices = schedule.slices;
  program.scratch = std::move(schedule.scratch);
  auto after = find_dependencies(request, rank, schedule.slices, schedule.steps);
  for (std::size_t i = 0; i < after.size(); ++i)
    program.steps.push_back({std::move(schedule.steps[i]), std::move(after[i]), {}, {}, {}});
  for (std::uint32_t later = 0; later < program.steps.size(); ++later)
    for (const Dependency& d : program.steps[later].after)
      if (auto& before = program.steps[d.step].before; before.empty() || before.back() != later)
        before.push_back(later);
  number_messages(program);
  find_ranges(program);
  program.hash = hash_of(program);
  return program;
}

}  // namespace tutti::comm
