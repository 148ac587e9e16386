#pragma once
// What each rank tells all others about itself at start: a value, to and from bytes.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/profile.h"
#include "comm/wire_bytes.h"

namespace tutti::comm {

struct RankInfo {
  int rank = 0;
  int rank_count = 0;                  // as this rank was told
  std::vector<std::string> addresses;  // TCP, best first; loopback ones for ranks with the same host_identity only
  std::string unix_name;               // "@name"; the same
  std::uint64_t host_identity = 0;
  std::string host;  // for people
  int pid = 0;
  int cores = 1;                       // that it may use
  std::string cpus;                    // which, as "0-3,8"; empty: not known
  int package = -1, numa = -1;         // where it runs; -1: not tied to one
  std::uint64_t instance = 0;  // random: tells a second process with this rank from a second attempt
  std::string version;
  std::uint64_t shared_hash = 0;  // Settings
  std::string shared_text;
  bool little_endian = true;
  Figures figures;             // of its profile
  bool operator==(const RankInfo&) const = default;

  // "rank 3 (host2, pid 4711)"
  std::string describe() const;
  bool same_host(const RankInfo& other) const { return host_identity == other.host_identity; }
};

inline constexpr std::size_t kMaxRankInfoBytes = 4096;
inline constexpr std::size_t kMaxAddresses = 16;
void encode(const RankInfo& info, ByteWriter& to);
// Empty when the bytes are no RankInfo.
std::optional<RankInfo> decode_rank_info(ByteReader& from);

}  // namespace tutti::comm
