#include "comm/program.h"

#include <algorithm>
#include <utility>

#include "core/check.h"

namespace tutti::comm {
namespace {

using algorithms::Chunks;
using algorithms::Space;
using algorithms::Step;
using algorithms::StepKind;

// Chunks that share memory get one place: in place, the own block of one space lies inside the full vector of the other.
class Places {
 public:
  Places(const algorithms::Request& request, int rank, std::uint32_t slices) : request_(request) {
    const std::uint32_t own = std::uint32_t(rank) * slices;
    if (request.collective == Collective::all_gather || request.collective == Collective::gather) input_shift_ = own;
    if (request.collective == Collective::reduce_scatter || request.collective == Collective::scatter) output_shift_ = own;
  }
  Chunks operator()(Chunks c) const {
    if (!request_.in_place || c.space == Space::scratch) return c;
    c.first += c.space == Space::input ? input_shift_ : output_shift_;
    c.space = Space::input;
    return c;
  }

 private:
  const algorithms::Request& request_;
  std::uint32_t input_shift_ = 0, output_shift_ = 0;
};

struct Access {
  Chunks chunks;
  bool writes = false;
};

std::vector<Access> accesses(const Step& step, const Places& place) {
  std::vector<Access> out;
  if (step.source.count && step.kind != StepKind::recv) out.push_back({place(step.source), false});
  if (step.target.count && step.kind != StepKind::send) {
    const Chunks target = place(step.target);
    if (step.kind == StepKind::recv_reduce && !out.empty() && out[0].chunks == target) out.clear();   // target op= received
    out.push_back({target, true});
  }
  return out;
}

bool overlap(const Chunks& a, const Chunks& b) {
  return a.space == b.space && a.first < b.first + b.count && b.first < a.first + a.count;
}

// All conflicts of `later` with `earlier`; `pipelined` stays true only where every one is over the same chunks.
bool conflict(const std::vector<Access>& earlier, const std::vector<Access>& later, bool& pipelined) {
  bool found = false;
  for (const Access& e : earlier)
    for (const Access& l : later) {
      if (!(e.writes || l.writes) || !overlap(e.chunks, l.chunks)) continue;
      found = true;
      if (!(e.chunks == l.chunks)) pipelined = false;
    }
  return found;
}

void find_dependencies(Program& program, const Places& place) {
  std::vector<std::vector<Access>> all;
  for (const ProgramStep& s : program.steps) all.push_back(accesses(s.step, place));
  // Quadratic in the steps, once a program; a step looks back only as far as steps that share a chunk with it.
  for (std::uint32_t later = 1; later < program.steps.size(); ++later)
    for (std::uint32_t earlier = 0; earlier < later; ++earlier) {
      bool pipelined = true;
      if (!conflict(all[earlier], all[later], pipelined)) continue;
      program.steps[later].after.push_back({earlier, pipelined});
      program.steps[earlier].before.push_back({later, pipelined});
    }
}

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
      if (c.count > 1 && c.first / program.slices != (c.first + c.count - 1) / program.slices) program.single_blocks = false;
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
  for (Step& step : schedule.steps) program.steps.push_back({std::move(step), {}, {}, {}, {}});
  const Places place(request, rank, program.slices);
  find_dependencies(program, place);
  number_messages(program);
  find_ranges(program);
  program.hash = hash_of(program);
  return program;
}

}  // namespace tutti::comm
