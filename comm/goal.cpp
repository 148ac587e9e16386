#include "comm/goal.h"

#include <fmt/format.h>

#include <cmath>
#include <map>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace tutti::comm {
namespace {

using algorithms::Step;
using algorithms::StepKind;

class RankWriter {
 public:
  RankWriter(const Part& part, double gamma) : part_(part), gamma_(gamma) {}

  void write(std::ostream& out) {
    text_ = fmt::format("\nrank {} {{\n", part_.rank);
    for (std::uint32_t i = 0; i < part_.steps.size(); ++i)
      if (part_.bytes[i] > 0) write_step(i);
    for (std::uint32_t i = 0; i < part_.steps.size(); ++i)
      if (part_.bytes[i] > 0) write_dependencies(i);
    out << text_ << "}\n";
  }

 private:
  bool computes(std::uint32_t index) const {
    const Step& step = part_.steps[index];
    return step.kind == StepKind::copy || step.kind == StepKind::reduce || operands(step) > 0;
  }

  std::vector<std::string> messages(std::uint32_t index) const {
    const Step& step = part_.steps[index];
    std::vector<std::string> names;
    for (std::size_t k = 0; k < step.peers.size(); ++k)
      names.push_back(fmt::format("l{}{}{}", index, step.kind == StepKind::send ? 's' : 'r', k));
    return names;
  }
  // What reads and writes the step's chunks. What a reduction receives may come at any time: it is held.
  std::vector<std::string> accesses(std::uint32_t index) const {
    return computes(index) ? std::vector{fmt::format("l{}", index)} : messages(index);
  }

  void write_step(std::uint32_t index) {
    const Step& step = part_.steps[index];
    const bool sends = step.kind == StepKind::send;
    const auto names = messages(index);
    for (std::size_t k = 0; k < names.size(); ++k)
      text_ += fmt::format("{}: {} {}b {} {} tag {}\n", names[k], sends ? "send" : "recv", part_.bytes[index],
                           sends ? "to" : "from", step.peers[k], numbers_[{sends, step.peers[k]}]++);
    if (!computes(index)) return;
    text_ +=
        fmt::format("l{}: calc {}\n", index, std::llround(double(part_.bytes[index]) * operands(step) * gamma_ * 1e9));
    for (const std::string& name : names) text_ += fmt::format("l{} requires {}\n", index, name);
  }

  void write_dependencies(std::uint32_t index) {
    const std::vector<Dependency>& after = part_.after[index];
    for (std::size_t i = 0; i < after.size(); ++i) {
      const Dependency& d = after[i];
      if (part_.bytes[d.step] == 0 || (i > 0 && after[i - 1].step == d.step)) continue;   // met at several places
      for (const std::string& later : accesses(index))
        for (const std::string& earlier : accesses(d.step)) text_ += fmt::format("{} requires {}\n", later, earlier);
    }
  }

  const Part& part_;
  double gamma_;
  std::string text_;
  std::map<std::pair<bool, int>, int> numbers_;  // of the next message, by direction and peer
};

}  // namespace

Status write_goal(std::ostream& out, const algorithms::Generator& generator, const algorithms::Request& request,
                  const Load& load, double gamma_seconds_per_byte) {
  if (const auto why = generator.refusal(request); !why.empty())
    return Status(Code::unsupported, fmt::format("{} cannot serve {} among {} ranks: {}", generator.name(),
                                                 name_of(request.collective), request.rank_count, why));
  out << fmt::format("num_ranks {}\n", request.rank_count);
  const auto schedule_of = generator.schedules(request);
  for (int rank = 0; rank < request.rank_count && out; ++rank) {
    const Part part = make_part(request, rank, schedule_of(rank), load);
    RankWriter(part, gamma_seconds_per_byte).write(out);
  }
  return {};
}

}  // namespace tutti::comm
