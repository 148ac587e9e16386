#include "transport/tcp/frame.h"

#include <bit>
#include <cstring>

#include "core/crc32c.h"

namespace tutti::transport::tcp {
namespace {

constexpr std::uint8_t kMagic = 0xA7;
constexpr std::uint8_t kVersion = 2;
constexpr std::size_t kCrcAt = 60;

template <class T>
T in_order(T value) {
  if constexpr (std::endian::native == std::endian::little || sizeof(T) == 1) {
    return value;
  } else {
    T out = 0;
    for (std::size_t i = 0; i < sizeof(T); ++i) out = static_cast<T>(out << 8 | (value >> (8 * i) & 0xFF));
    return out;
  }
}

template <class T>
void put(std::byte* wire, std::size_t at, T value) {
  value = in_order(value);
  std::memcpy(wire + at, &value, sizeof value);
}

template <class T>
T get(const std::byte* wire, std::size_t at) {
  T value;
  std::memcpy(&value, wire + at, sizeof value);
  return in_order(value);
}

}  // namespace

void encode(const Frame& frame, std::byte* wire) {
  const SegmentHeader& segment = frame.segment;
  put(wire, 0, kMagic);
  put(wire, 1, kVersion);
  put(wire, 2, static_cast<std::uint8_t>(frame.type));
  put(wire, 3, frame.flags);
  put(wire, 4, static_cast<std::uint16_t>(segment.key.message));
  put(wire, 6, static_cast<std::uint16_t>(segment.plan));
  put(wire, 8, segment.bytes);
  put(wire, 12, segment.key.communicator);
  put(wire, 16, segment.key.operation);
  put(wire, 20, frame.sequence);
  put(wire, 24, frame.ack);
  put(wire, 28, frame.credit);
  put(wire, 32, segment.offset);
  put(wire, 40, segment.message_bytes);
  put(wire, 48, segment.call);
  put(wire, 56, frame.payload_crc);
  put(wire, kCrcAt, crc32c(wire, kCrcAt));
}

const char* decode(const std::byte* wire, Frame& frame) {
  if (get<std::uint8_t>(wire, 0) != kMagic) return "not a frame header";
  if (get<std::uint32_t>(wire, kCrcAt) != crc32c(wire, kCrcAt)) return "frame header with a wrong checksum";
  if (get<std::uint8_t>(wire, 1) != kVersion) return "frame of another version";
  const auto type = get<std::uint8_t>(wire, 2);
  if (type < static_cast<std::uint8_t>(FrameType::data) || type > static_cast<std::uint8_t>(FrameType::close)) {
    return "frame of an unknown type";
  }
  frame.type = static_cast<FrameType>(type);
  frame.flags = get<std::uint8_t>(wire, 3);
  frame.sequence = get<std::uint32_t>(wire, 20);
  frame.ack = get<std::uint32_t>(wire, 24);
  frame.credit = get<std::uint32_t>(wire, 28);
  frame.payload_crc = get<std::uint32_t>(wire, 56);
  SegmentHeader& segment = frame.segment;
  segment.key = {get<std::uint32_t>(wire, 12), get<std::uint32_t>(wire, 16), get<std::uint16_t>(wire, 4)};
  segment.plan = get<std::uint16_t>(wire, 6);
  segment.bytes = get<std::uint32_t>(wire, 8);
  segment.offset = get<std::uint64_t>(wire, 32);
  segment.message_bytes = get<std::uint64_t>(wire, 40);
  segment.call = get<std::uint64_t>(wire, 48);
  if (frame.type != FrameType::data) return segment.bytes == 0 ? nullptr : "control frame with a payload";
  if (segment.bytes > kMaxPayload) return "frame longer than any may be";
  if (segment.bytes > segment.message_bytes || segment.offset > segment.message_bytes - segment.bytes) {
    return "segment outside of its message";
  }
  return nullptr;
}

}  // namespace tutti::transport::tcp
