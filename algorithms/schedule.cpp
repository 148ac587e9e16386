#include "algorithms/schedule.h"

#include <fmt/format.h>

namespace tutti::algorithms {
namespace {

std::string text(const Chunks& c) {
  constexpr const char* kNames[] = {"input", "output", "scratch"};
  if (c.count == 1) return fmt::format("{}[{}]", kNames[int(c.space)], c.first);
  return fmt::format("{}[{}..{}]", kNames[int(c.space)], c.first, c.first + c.count - 1);
}

}  // namespace

std::string to_string(const Step& s) {
  std::string peers;
  for (int p : s.peers) peers += fmt::format("{}{}", peers.empty() ? "" : ",", p);
  const char* mark = s.completes ? " complete" : "";
  switch (s.kind) {
    case StepKind::send: return fmt::format("send {} -> {}", text(s.source), peers);
    case StepKind::recv: return fmt::format("recv {} <- {}", text(s.target), peers);
    case StepKind::recv_reduce:
      if (s.source.count == 0) return fmt::format("recv_reduce {} <- {}{}", text(s.target), peers, mark);
      return fmt::format("recv_reduce {} = {} + <- {}{}", text(s.target), text(s.source), peers, mark);
    case StepKind::copy: return fmt::format("copy {} = {}", text(s.target), text(s.source));
    case StepKind::reduce: return fmt::format("reduce {} += {}{}", text(s.target), text(s.source), mark);
  }
  return {};
}

std::string to_string(const Schedule& schedule) {
  std::string out =
      fmt::format("blocks {} slices {} scratch {}\n", schedule.blocks, schedule.slices, schedule.scratch.size());
  for (std::size_t i = 0; i < schedule.steps.size(); ++i)
    out += fmt::format("{:4} {}\n", i, to_string(schedule.steps[i]));
  return out;
}

}  // namespace tutti::algorithms
