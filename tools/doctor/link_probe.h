#pragma once
// The end of a pair that calls: reaches a LinkServer by each of its addresses and measures what the first good one
// gives.
#include "tools/doctor/link_server.h"
#include "tools/doctor/pair.h"

namespace tutti::tools::doctor {

struct ProbeOrder {
  int from = 0, to = 0;                // ranks
  std::vector<std::string> addresses;  // numeric, without port, best first
  int port = 0;
  std::string token;           // kTokenBytes, in hexadecimal
  bool measure = true;         // else reachability alone
  int streams = 1;             // connections side by side in the flows
  int mtu = 0, other_mtu = 0;  // of the interfaces at both ends; 0: not known
  static void fields(auto& self, auto&& visit) {
    visit("from", self.from), visit("to", self.to), visit("addresses", self.addresses), visit("port", self.port);
    visit("token", self.token), visit("measure", self.measure), visit("streams", self.streams);
    visit("mtu", self.mtu), visit("other_mtu", self.other_mtu);
  }
};

// Every step has its own limit; all together at most about 25 s, and 2 s where nothing is wrong.
Pair probe(const ProbeOrder& order);
// A host that is silent at every address costs the most.
inline constexpr std::chrono::seconds kLongestProbe{40};

std::string to_hex(const std::string& bytes);
std::string from_hex(const std::string& text);

}  // namespace tutti::tools::doctor
