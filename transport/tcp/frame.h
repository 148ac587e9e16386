#pragma once
// The frame of the tcp transport: 64 bytes of header, little-endian, then the payload. A value and its encoding; knows
// no sockets and keeps no state. Everything read from a header is checked here as far as a header alone can be checked.
//
//   0 magic  1 version  2 type  3 flags (upper half: which sending)  4 message u16  6 plan u16  8 bytes u32  12 communicator u32  16 operation u32
//  20 sequence u32  24 ack u32  28 credit u32  32 offset u64  40 message_bytes u64  48 call u64  56 payload_crc u32
//  60 header_crc u32: CRC32C of bytes 0..59
#include <array>
#include <cstddef>
#include <cstdint>

#include "transport/transport.h"

namespace tutti::transport::tcp {

inline constexpr std::size_t kHeaderBytes = 64;
// The longest payload of one frame. Bounds what a hostile header can ask for.
inline constexpr std::size_t kMaxPayload = 4u << 20;
// Frames in flight and not acknowledged, per direction of a connection. Both ends size their rings by it.
inline constexpr std::uint32_t kWindow = 1024;
// Credits count bytes in units of this, so that 32 bits last.
inline constexpr std::uint32_t kCreditUnit = 64;

enum class FrameType : std::uint8_t {
  data = 1,   // a segment; sequenced
  grant,      // the message may be sent; sequenced
  request,    // an eager message waits for credit: grant it when it is expected; sequenced
  ack,        // ack and credit only; offset, message_bytes and call hold the bits of the 192 sequences behind `ack`
  nack,       // the payload of frame `sequence` arrived damaged
  close,      // the peer has disconnected in good order
};

enum FrameFlag : std::uint8_t {
  kEager = 1,   // sent on credit, without a grant
  kHasCrc = 2,  // payload_crc is set
  kWantAck =
      4,  // the sender keeps its source until acknowledged, and nothing follows soon; on an ack: it wants one, too
  kRequested = 8,  // a request for its message is out and not answered
};

// The upper half of the flags counts the sendings of a frame, modulo 16: which of two is the one that was given up.
inline constexpr std::uint8_t kSending = 16;
constexpr bool is_later_sending(std::uint8_t flags, std::uint8_t other) {
  const unsigned ahead = (flags / kSending - other / kSending) & 15u;
  return ahead != 0 && ahead < 8;
}

struct Frame {
  FrameType type = FrameType::data;
  std::uint8_t flags = 0;
  std::uint32_t sequence = 0;      // low 32 bits of the frame's number on this connection; data, grant, request, nack
  std::uint32_t ack = 0;           // low 32 bits: all frames below have arrived
  std::uint32_t credit = 0;        // how many eager units may have been sent since the beginning
  std::uint32_t payload_crc = 0;
  SegmentHeader segment;

  bool sequenced() const { return type == FrameType::data || type == FrameType::grant || type == FrameType::request; }
};

using AckBits = std::array<std::uint64_t, 3>;

// What an eager payload of that size costs: its bytes and its bookkeeping.
constexpr std::uint32_t credit_cost(std::size_t bytes) {
  return static_cast<std::uint32_t>((bytes + kHeaderBytes + kCreditUnit - 1) / kCreditUnit);
}

// The number near `reference` (within 2^31) whose low 32 bits are `low`.
constexpr std::uint64_t widen(std::uint32_t low, std::uint64_t reference) {
  return reference + static_cast<std::uint64_t>(static_cast<std::int64_t>(
                         static_cast<std::int32_t>(low - static_cast<std::uint32_t>(reference))));
}

void encode(const Frame& frame, std::byte* wire);
// nullptr: good. Otherwise what is wrong with it, and `frame` is not to be used.
const char* decode(const std::byte* wire, Frame& frame);

}  // namespace tutti::transport::tcp
