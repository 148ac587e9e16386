#pragma once
// Channel: JSON messages between rank 0 and one other rank. Both prove the job's key first, and each message carries a
// MAC over its direction and number, so that nobody without the key can read a rank's orders as his own or add to them.
// It encrypts nothing.
//
//   caller -> listener   magic 16, 16 random bytes
//   listener -> caller   magic 16, 16 random bytes, HMAC(key, "listener" and all so far)
//   caller -> listener   HMAC(key, "caller" and all so far)
//   then, both ways      length 4 (little endian), HMAC(session, direction 1, number 8, body), body
#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "comm/handshake.h"
#include "tools/doctor/sockets.h"

namespace tutti::tools::doctor {

class Channel {
 public:
  // Errors of both: network (the other end is something else: what it sent is in the text), mismatch (another key),
  // timeout.
  static Result<Channel> call(Descriptor socket, const comm::JobKey& key, Deadline deadline);
  static Result<Channel> answer(Descriptor socket, const comm::JobKey& key, Deadline deadline);

  // timeout, network; receive also mismatch (forged or damaged) and invalid_argument (no JSON).
  Status send(const nlohmann::json& message, Deadline deadline);
  Result<nlohmann::json> receive(Deadline deadline);

  int socket() const { return socket_.get(); }

 private:
  using Mac = std::array<unsigned char, 32>;
  Channel(Descriptor socket, Mac session, bool caller)
      : socket_(std::move(socket)), session_(session), caller_(caller) {}
  Mac mac(bool from_caller, std::uint64_t number, const std::string& body) const;

  Descriptor socket_;
  Mac session_;
  bool caller_;
  std::uint64_t sent_ = 0, received_ = 0;
};

}  // namespace tutti::tools::doctor
