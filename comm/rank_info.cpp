#include "comm/rank_info.h"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::comm {
namespace {

// So that every RankInfo fits into kMaxRankInfoBytes.
constexpr std::size_t kMaxText = 1024, kMaxName = 108, kMaxCpus = 512;

std::string_view cut(std::string_view text, std::size_t most) { return text.substr(0, most); }

}  // namespace

std::string RankInfo::describe() const { return fmt::format("rank {} ({}, pid {})", rank, host, pid); }

void encode(const RankInfo& info, ByteWriter& to) {
  to.number(std::uint32_t(info.rank)).number(std::uint32_t(info.rank_count));
  std::size_t count = std::min(info.addresses.size(), kMaxAddresses);
  to.number(std::uint8_t(count));
  for (std::size_t i = 0; i < count; ++i) to.text(cut(info.addresses[i], kMaxName));
  to.text(cut(info.unix_name, kMaxName)).number(info.host_identity).text(cut(info.host, kMaxName));
  to.number(std::uint32_t(info.pid)).number(std::uint32_t(info.cores)).number(info.instance);
  to.text(info.cpus.size() <= kMaxCpus ? info.cpus : "");
  to.number(std::uint32_t(info.package + 1)).number(std::uint32_t(info.numa + 1));
  to.text(cut(info.version, kMaxName)).number(info.shared_hash).text(cut(info.shared_text, kMaxText));
  to.number(std::uint8_t(info.little_endian));
  encode(info.figures, to);
}

std::optional<RankInfo> decode_rank_info(ByteReader& from) {
  RankInfo out;
  out.rank = int(from.number<std::uint32_t>());
  out.rank_count = int(from.number<std::uint32_t>());
  std::size_t count = from.number<std::uint8_t>();
  if (count > kMaxAddresses) return std::nullopt;
  for (std::size_t i = 0; i < count; ++i) out.addresses.push_back(from.text());
  out.unix_name = from.text();
  out.host_identity = from.number<std::uint64_t>();
  out.host = from.text();
  out.pid = int(from.number<std::uint32_t>());
  out.cores = int(from.number<std::uint32_t>());
  out.instance = from.number<std::uint64_t>();
  out.cpus = from.text();
  out.package = int(from.number<std::uint32_t>()) - 1;
  out.numa = int(from.number<std::uint32_t>()) - 1;
  out.version = from.text();
  out.shared_hash = from.number<std::uint64_t>();
  out.shared_text = from.text();
  out.little_endian = from.number<std::uint8_t>() != 0;
  out.figures = decode_figures(from);
  if (!from.good() || out.rank < 0 || out.rank_count < 1) return std::nullopt;
  return out;
}

}  // namespace tutti::comm
