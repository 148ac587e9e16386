// Mutants: schedules with one step spoilt. Whatever the interpreter finds to be wrong, the checker must refuse;
// whatever the checker lets pass, the interpreter must find right.
#include <array>
#include <cstdio>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include "algorithms/checker.h"
#include "tests/algorithms/interpreter.h"
#include "tests/algorithms/requests.h"

namespace tutti::algorithms::test {
namespace {

enum class Change {
  drop,
  duplicate,
  shift_source,
  shift_target,
  change_peer,
  swap_kind,
  source_space,
  target_space,
  swap_steps,
  swap_neighbours,
  drop_operand,
  drop_peer,
  shrink,
  flip_completes
};
constexpr int kChanges = 14;

using Random = std::mt19937_64;

int below(Random& random, std::size_t n) { return int(random() % n); }

void shift(Random& random, Chunks& chunks) { chunks.first += random() % 2 == 0 && chunks.first > 0 ? -1u : 1u; }

void other_space(Random& random, Chunks& chunks) {
  chunks.space = Space((int(chunks.space) + 1 + below(random, 2)) % 3);
}

void change_peer(Random& random, int rank_count, Step& step) {
  if (step.peers.empty()) return;
  step.peers[std::size_t(below(random, step.peers.size()))] = below(random, std::size_t(rank_count));
  if (step.kind == StepKind::recv_reduce) std::sort(step.peers.begin(), step.peers.end());
}

void swap_kind(Step& step) {
  switch (step.kind) {
    case StepKind::recv:
      step.kind = StepKind::recv_reduce;
      step.source = step.target;
      break;
    case StepKind::recv_reduce:
      step.kind = StepKind::recv;
      step.source = {};
      step.completes = false;
      break;
    case StepKind::copy: step.kind = StepKind::reduce; break;
    case StepKind::reduce: step.kind = StepKind::copy; break;
    case StepKind::send: break;
  }
}

// Spoils step `at` of a schedule. It may happen to change nothing.
void spoil(Random& random, Change change, int rank_count, std::size_t at, std::vector<Step>& steps) {
  Step& step = steps[at];
  switch (change) {
    case Change::drop: steps.erase(steps.begin() + long(at)); break;
    case Change::duplicate: steps.insert(steps.begin() + long(at), Step(step)); break;
    case Change::shift_source:
      if (step.source.count > 0) shift(random, step.source);
      break;
    case Change::shift_target:
      if (step.target.count > 0) shift(random, step.target);
      break;
    case Change::change_peer: change_peer(random, rank_count, step); break;
    case Change::swap_kind: swap_kind(step); break;
    case Change::source_space:
      if (step.source.count > 0) other_space(random, step.source);
      break;
    case Change::target_space:
      if (step.target.count > 0) other_space(random, step.target);
      break;
    case Change::swap_steps: std::swap(step, steps[std::size_t(below(random, steps.size()))]); break;
    case Change::swap_neighbours:
      if (at > 0) std::swap(step, steps[at - 1]);
      break;
    case Change::drop_operand:
      if (step.kind == StepKind::recv_reduce) step.source = {};
      break;
    case Change::drop_peer:
      if (step.peers.size() > 1) step.peers.erase(step.peers.begin() + below(random, step.peers.size()));
      break;
    case Change::shrink:
      if (step.source.count > 0) --step.source.count;
      if (step.target.count > 0) --step.target.count;
      break;
    case Change::flip_completes:
      if (step.kind == StepKind::recv_reduce || step.kind == StepKind::reduce) step.completes = !step.completes;
      break;
  }
}

struct Tally {
  int made = 0, harmful = 0, refused = 0, missed = 0;
};

void judge(const Request& request, const std::vector<Schedule>& mutant, const std::string& what, Tally& tally) {
  const std::vector<bool> in_place(mutant.size(), request.in_place);
  const Verdict verdict = check(request, mutant);
  std::string error;
  for (std::uint64_t seed = 1; seed <= 3 && error.empty(); ++seed)
    error = interpret(request, mutant, in_place, seed).error;
  ++tally.made;
  tally.harmful += !error.empty();
  tally.refused += !verdict.proved();
  if (error.empty() || !verdict.proved()) return;
  ++tally.missed;
  ADD_FAILURE() << "missed: " << what << ", the interpreter says: " << error;
}

// The receive at `peer` that meets step `at` of `rank`, a send.
std::size_t counterpart(const std::vector<Schedule>& schedules, int rank, std::size_t at, int peer) {
  const auto names = [](const Step& step, int whom) {
    return std::count(step.peers.begin(), step.peers.end(), whom) > 0;
  };
  const std::vector<Step>& sends = schedules[std::size_t(rank)].steps;
  const std::vector<Step>& receives = schedules[std::size_t(peer)].steps;
  int before = 0;
  for (std::size_t i = 0; i < at; ++i) before += sends[i].kind == StepKind::send && names(sends[i], peer);
  for (std::size_t i = 0; i < receives.size(); ++i) {
    if (receives[i].kind != StepKind::send && names(receives[i], rank) && before-- == 0) return i;
  }
  return receives.size();
}

// Spoils both ends of one message alike, so that they still fit: only where the data ends up is wrong.
constexpr int kPairChanges = 3;
bool spoil_pair(Random& random, int change, std::vector<Schedule>& schedules) {
  const int rank = below(random, schedules.size());
  std::vector<Step>& steps = schedules[std::size_t(rank)].steps;
  if (steps.empty()) return false;
  const std::size_t at = std::size_t(below(random, steps.size()));
  if (steps[at].kind != StepKind::send || steps[at].peers.size() != 1) return false;
  const int peer = steps[at].peers[0];
  std::vector<Step>& others = schedules[std::size_t(peer)].steps;
  const std::size_t there = counterpart(schedules, rank, at, peer);
  if (others[there].peers.size() != 1) return false;
  switch (change) {
    case 0:
      ++steps[at].source.first;
      ++others[there].target.first;
      if (others[there].source.count > 0) ++others[there].source.first;
      return true;
    case 1:
      steps.erase(steps.begin() + long(at));
      others.erase(others.begin() + long(there));
      return true;
    default:
      steps.insert(steps.begin() + long(at), Step(steps[at]));
      others.insert(others.begin() + long(there), Step(others[there]));
      return true;
  }
}

void mutate(const Generator& generator, const Request& request, Random& random, std::map<Change, Tally>& tallies) {
  std::vector<Schedule> schedules;
  for (int rank = 0; rank < request.rank_count; ++rank) schedules.push_back(generator.generate(request, rank));
  for (int i = 0; i < kChanges; ++i) {
    std::vector<Schedule> mutant = schedules;
    const int rank = below(random, mutant.size());
    std::vector<Step>& steps = mutant[std::size_t(rank)].steps;
    if (steps.empty()) continue;
    const int at = below(random, steps.size());
    spoil(random, Change(i), request.rank_count, std::size_t(at), steps);
    if (mutant == schedules) continue;
    const std::string what = std::string(generator.name()) + " " + described(request) + ", change " +
                             std::to_string(i) + " of rank " + std::to_string(rank) + " step " + std::to_string(at);
    judge(request, mutant, what, tallies[Change(i)]);
  }
}

TEST(Mutants, messages_spoilt_at_both_ends_are_refused_when_harmful) {
  Random random(20260102);
  std::array<Tally, kPairChanges> tallies;
  for (const Generator* generator : generators()) {
    for (int p = 2; p <= 8; ++p) {
      for (const Request& request : requests(*generator, p)) {
        std::vector<Schedule> schedules;
        for (int rank = 0; rank < p; ++rank) schedules.push_back(generator->generate(request, rank));
        for (int i = 0; i < 2 * kPairChanges; ++i) {
          std::vector<Schedule> mutant = schedules;
          if (!spoil_pair(random, i % kPairChanges, mutant)) continue;
          judge(request, mutant,
                std::string(generator->name()) + " " + described(request) + ", pair change " + std::to_string(i),
                tallies[std::size_t(i % kPairChanges)]);
        }
      }
    }
  }
  for (const Tally& tally : tallies) {
    std::printf("both ends: %5d mutants, %5d harmful, %5d refused, %d missed\n", tally.made, tally.harmful,
                tally.refused, tally.missed);
    EXPECT_GT(tally.harmful, 100);
    EXPECT_EQ(tally.missed, 0);
  }
}

TEST(Mutants, the_checker_refuses_every_harmful_one) {
  Random random(20260101);
  std::map<Change, Tally> tallies;
  for (const Generator* generator : generators()) {
    for (int p = 2; p <= 8; ++p) {
      for (const Request& request : requests(*generator, p)) mutate(*generator, request, random, tallies);
    }
  }
  Tally all;
  for (const auto& [change, tally] : tallies) {
    std::printf("change %2d: %5d mutants, %5d harmful, %5d refused, %d missed\n", int(change), tally.made,
                tally.harmful, tally.refused, tally.missed);
    EXPECT_GT(tally.harmful, 50) << "change " << int(change) << " spoils too little to say anything";
    all.made += tally.made;
    all.harmful += tally.harmful;
    all.refused += tally.refused;
    all.missed += tally.missed;
  }
  std::printf("all:       %5d mutants, %5d harmful, %5d refused, %d missed\n", all.made, all.harmful, all.refused,
              all.missed);
  EXPECT_EQ(tallies.size(), std::size_t(kChanges));
  EXPECT_GT(all.harmful, 1000);
  EXPECT_EQ(all.missed, 0);
  // The checker may refuse what happens to come out right (a stale read of equal words), but not at will.
  EXPECT_LT(all.refused - all.harmful, all.made / 10);
}

}  // namespace
}  // namespace tutti::algorithms::test
