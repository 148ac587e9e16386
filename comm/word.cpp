#include "comm/word.h"

#include <algorithm>

#include "comm/wire_bytes.h"

namespace tutti::comm {

namespace {

// Ranks as bits, so that many of them fit.
void put_ranks(ByteWriter& out, const std::set<int>& ranks) {
  std::vector<std::byte> bits(ranks.empty() ? 0 : std::size_t(*ranks.rbegin()) / 8 + 1);
  for (const int r : ranks) bits[std::size_t(r) / 8] |= std::byte(1 << r % 8);
  out.number(std::uint16_t(bits.size())).raw(bits);
}

std::set<int> get_ranks(ByteReader& in) {
  std::set<int> out;
  const auto bits = in.raw(in.number<std::uint16_t>());
  for (std::size_t i = 0; i < bits.size() * 8; ++i)
    if ((bits[i / 8] >> i % 8 & std::byte(1)) != std::byte(0)) out.insert(int(i));
  return out;
}

}  // namespace

std::vector<std::byte> Word::encode() const {
  ByteWriter out;
  out.number(std::uint8_t(kind)).number(communicator).number(std::uint32_t(about + 1));
  out.number(std::uint32_t(status.code())).number(std::uint32_t(status.culprit() + 1));
  out.text(std::string_view(status.text()).substr(0, kMaxText));
  const std::size_t waits = std::min(report.waits_for.size(), kMaxWaits);
  out.number(report.started).number(std::uint8_t(report.pending)).number(std::uint8_t(waits));
  for (std::size_t i = 0; i < waits; ++i) out.number(std::uint32_t(report.waits_for[i]));
  put_ranks(out, belief.lost);
  put_ranks(out, belief.ended);
  out.number(std::uint8_t(belief.agreed)).number(belief.id);
  return out.take();
}

std::optional<Word> Word::decode(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  Word word;
  const auto kind = in.number<std::uint8_t>();
  word.communicator = in.number<std::uint32_t>();
  word.about = int(in.number<std::uint32_t>()) - 1;
  const auto code = in.number<std::uint32_t>(), culprit = in.number<std::uint32_t>();
  const std::string text = in.text();
  word.report.started = in.number<std::uint32_t>();
  word.report.pending = in.number<std::uint8_t>() != 0;
  const auto waits = in.number<std::uint8_t>();
  for (unsigned i = 0; i < waits && in.good(); ++i) word.report.waits_for.push_back(int(in.number<std::uint32_t>()));
  word.belief.lost = get_ranks(in);
  word.belief.ended = get_ranks(in);
  word.belief.agreed = in.number<std::uint8_t>() != 0;
  word.belief.id = in.number<std::uint32_t>();
  if (!in.good() || kind > std::uint8_t(Kind::belief) || code > std::uint32_t(Code::internal)) return std::nullopt;
  word.kind = Kind(kind);
  const bool tells = word.kind == Kind::cause || word.kind == Kind::verdict;
  if (tells != (code != 0)) return std::nullopt;
  if (tells) word.status = Status(Code(code), text, int(culprit) - 1);
  return word;
}

}  // namespace tutti::comm
