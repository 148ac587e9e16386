#include "comm/result_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "comm/engine.h"
#include "comm/member.h"
#include "core/crc32c.h"

namespace tutti::comm {

ResultCheck::ResultCheck(const Prepared& call, int rank_count) : all_(std::size_t(rank_count)) {
  const Binding& b = call.binding;
  const std::uint64_t element = size_of(b.type);
  const bool in_blocks = call.call.collective == Collective::all_gather;
  if (!in_blocks) blocks_.emplace_back(b.output, b.vector * element);
  for (std::uint64_t r = 0; in_blocks && r < std::uint64_t(rank_count); ++r)
    blocks_.emplace_back(b.output + b.out.offset(r) * element, b.out.count(r) * element);
}

std::shared_ptr<Operation> ResultCheck::begin() {
  begun_ = true;
  std::uint32_t sum = 0;
  for (const auto& [data, bytes] : blocks_)
    if (bytes > 0) sum = crc32c(data, bytes, sum);
  own_ = sum;
  return exchange_;
}

Status ResultCheck::judge(const Operation& of, const Engine& engine) {
  std::map<std::uint64_t, std::vector<int>> holders;
  for (std::size_t r = 0; r < all_.size(); ++r) holders[all_[r]].push_back(int(r));
  agreed_ = holders.size() == 1;
  if (agreed_) return {};
  const auto most = std::max_element(holders.begin(), holders.end(), [](const auto& a, const auto& b) {
    return a.second.size() != b.second.size() ? a.second.size() < b.second.size() : a.second[0] > b.second[0];
  });
  int culprit = -1;
  std::string others;
  for (const auto& [sum, ranks] : holders) {
    if (sum == most->first) continue;
    if (culprit < 0 || ranks[0] < culprit) culprit = ranks[0];
    for (const int rank : ranks)
      others +=
          fmt::format("{}{} ({:08x})", others.empty() ? "" : ", ", engine.describe(of.member().world_rank(rank)), sum);
  }
  return Status(Code::damaged,
                fmt::format("operation {} {}: its result is not the same on all ranks: {} of {} have the checksum "
                            "{:08x}, and not so {}: faulty memory or "
                            "a faulty processor, or a buffer that was changed while the operation ran",
                            of.sequence, to_string(of.call), most->second.size(), all_.size(), most->first, others),
                culprit);
}

void ResultCheck::drop() {
  if (!exchange_) return;
  if (!begun_) {
    exchange_->member().forget(*exchange_);
    exchange_->execution.reset();
  }
  exchange_.reset();
}

}  // namespace tutti::comm
