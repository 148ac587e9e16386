#include "comm/word.h"

#include <algorithm>

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
  comm::encode(report.stands, out);
  out.text(std::string_view(hang).substr(0, kMaxHang));
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
  word.report.stands = decode_stands(in);
  word.hang = in.text();
  if (!in.good() || kind > std::uint8_t(Kind::belief) || code > std::uint32_t(kLastCode)) return std::nullopt;
  word.kind = Kind(kind);
  const bool tells = word.kind == Kind::cause || word.kind == Kind::verdict;
  if (tells != (code != 0)) return std::nullopt;
  if (tells) word.status = Status(Code(code), text, int(culprit) - 1);
  return word;
}

void encode(const std::vector<Stand>& stands, ByteWriter& to) {
  const std::size_t count = std::min(stands.size(), kMaxStands);
  to.number(std::uint8_t(count));
  for (std::size_t i = 0; i < count; ++i) {
    const Stand& s = stands[i];
    to.number(s.step)
        .number(s.steps)
        .number(std::uint32_t(s.peer))
        .number(std::uint8_t(s.sends))
        .number(s.chunk)
        .number(s.done)
        .number(s.bytes);
    to.number(s.sequence).number(std::uint8_t(s.collective)).number(s.call);
  }
}

std::vector<Stand> decode_stands(ByteReader& from) {
  std::vector<Stand> stands;
  const auto count = from.number<std::uint8_t>();
  for (unsigned i = 0; i < count && from.good(); ++i) {
    Stand s;
    s.step = from.number<std::uint32_t>();
    s.steps = from.number<std::uint32_t>();
    s.peer = int(from.number<std::uint32_t>());
    s.sends = from.number<std::uint8_t>() != 0;
    s.chunk = from.number<std::uint32_t>();
    s.done = from.number<std::uint64_t>();
    s.bytes = from.number<std::uint64_t>();
    s.sequence = from.number<std::uint32_t>();
    s.collective = from.number<std::uint8_t>() != 0;
    s.call = from.number<std::uint64_t>();
    stands.push_back(s);
  }
  return stands;
}

}  // namespace tutti::comm
