#pragma once
// One socket of a connection: its stream, and where writing and reading stand in the middle of a frame. State only;
// outgoing writes, incoming reads, connection buries.
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/net.h"
#include "transport/tcp/frame.h"
#include "transport/tcp/landing_pool.h"
#include "transport/tcp/out_frame.h"

namespace tutti::transport::tcp {

class TcpConnection;

// A data frame whose header is there and whose payload is not, or not whole.
struct Arrival {
  Frame frame;
  std::uint64_t sequence = 0;
  std::byte* into = nullptr;         // null: unwanted
  Landing* landing = nullptr;        // that `into` belongs to; null: the listener's own memory
  std::unique_ptr<std::byte[]> sink; // `into`, when the listener has taken its memory back
  std::size_t got = 0;
  std::uint32_t crc = 0;
  TimePoint emptied{};               // when a read of its payload last took all that the socket had; zero: none did
  bool active = false;
  bool unwanted = false;             // a duplicate: its bytes are read and dropped
};

struct TcpSocket {
  std::unique_ptr<Stream> stream;
  TcpConnection* connection = nullptr;
  std::string addresses;             // "10.0.0.1:4000 -> 10.0.0.2:5000"

  // Writing. `control` holds encoded acks and nacks of this very socket; they go after the frame being written.
  OutFrame* writing = nullptr;
  std::size_t written = 0;           // of `writing`, header included
  std::array<std::byte, 16 * kHeaderBytes> control;
  std::size_t control_begin = 0, control_end = 0;
  bool blocked = false;              // the last write did not take everything
  Status write_failure;              // reading goes on until the end: what the peer had sent counts

  // Reading.
  Arrival arrival;
  std::array<std::byte, kHeaderBytes> stash;      // the beginning of a header
  std::size_t stashed = 0;
  bool bulk = false;                 // the last payload was large: read headers with small reads, payloads in place
  unsigned damaged = 0;              // payloads in a row with a wrong checksum
  Status failure;                    // set: to be buried

  // Readiness.
  std::uint64_t last_active = 0;     // poll round
  std::uint64_t armed_at = 0;        // poll round
  bool ready = false;
  bool active = false;
  bool armed_read = false, armed_write = false;

  bool usable() const { return failure.ok() && write_failure.ok(); }
  bool has_control() const { return control_end > control_begin; }
  // False: no room.
  bool put_control(const Frame& frame) {
    if (control_begin == control_end) control_begin = control_end = 0;
    if (control_end + kHeaderBytes > control.size()) return false;
    encode(frame, control.data() + control_end);
    control_end += kHeaderBytes;
    return true;
  }
};

}  // namespace tutti::transport::tcp
