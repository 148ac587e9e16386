#pragma once
// UniqueId's bytes: where the meeting point listens, and the job's secret.
//
//   0 version 1 · 1 number of addresses · 2..3 port · 4..19 secret · addresses (4 or 6, then 4 or 16 bytes each) ·
//   zeros · 124..127 CRC32C of all before
#include <tutti/communicator.h>
#include <string>
#include <vector>

namespace tutti::comm {

struct Invitation {
  std::vector<std::string> addresses;  // "10.0.0.1:4000"
  std::string secret;                  // 16 bytes
  bool operator==(const Invitation&) const = default;
};

// Hosts are numeric; those that have no room or are link-local are left out.
UniqueId make_id(const std::vector<std::string>& hosts, int port, const std::string& secret);
// invalid_argument: all zero, damaged, or of another version.
Result<Invitation> read_id(const UniqueId& id);

}  // namespace tutti::comm
