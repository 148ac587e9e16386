#pragma once
// Pair: what was found between two hosts, as a value, from the one that called to the one that listened. It judges
// nothing: that is findings.h.
#include <string>
#include <vector>

#include "tools/doctor/json_fields.h"

namespace tutti::tools::doctor {

enum class Reach { untried, connected, refused, filtered, unreachable, stranger, failed };
NLOHMANN_JSON_SERIALIZE_ENUM(Reach, {{Reach::untried, "untried"},
                                     {Reach::connected, "connected"},
                                     {Reach::refused, "refused"},
                                     {Reach::filtered, "filtered"},
                                     {Reach::unreachable, "unreachable"},
                                     {Reach::stranger, "stranger"},
                                     {Reach::failed, "failed"}})

// One address that was tried.
struct Attempt {
  std::string address;  // "10.0.0.2:4000"
  Reach reach = Reach::untried;
  std::string text;           // what came back
  bool host_answers = false;  // filtered: another port of the same address did answer
  static void fields(auto& self, auto&& visit) {
    visit("address", self.address), visit("reach", self.reach), visit("text", self.text);
    visit("host_answers", self.host_answers);
  }
};

// Bytes one way for a short time.
struct Flow {
  double bytes_per_second = 0;  // 0: not measured
  double busy = 0;              // share of time that the ends ran, or were ready to and had no core, both added
  std::string error;
  static void fields(auto& self, auto&& visit) {
    visit("bytes_per_second", self.bytes_per_second), visit("busy", self.busy), visit("error", self.error);
  }
};

struct Pair {
  int from = 0, to = 0;                             // ranks
  std::vector<Attempt> attempts, back;              // back: the other way round, reachability only
  std::string from_address, to_address;             // of the connection that was measured; "" when there was none
  double round_trip_us = 0, round_trip_p99_us = 0;  // of 64 bytes
  int path_mtu = 0;                                 // what this end's kernel believes
  int datagram = 0, back_datagram = 0;       // largest IP packet that arrived, each way; 0: none, so nothing is known
  int wanted_datagram = 0, back_wanted = 0;  // the sending interface's MTU
  bool large_passed = false;                 // 256 KiB over TCP arrived
  std::string error;                         // why a measurement after connecting ended early
  Flow there, here;                          // from -> to, to -> from
  int streams = 1;
  double resent = 0;  // share of this end's TCP segments that were sent again during the flows
  static void fields(auto& self, auto&& visit) {
    visit("from", self.from), visit("to", self.to), visit("attempts", self.attempts), visit("back", self.back);
    visit("from_address", self.from_address), visit("to_address", self.to_address);
    visit("round_trip_us", self.round_trip_us), visit("round_trip_p99_us", self.round_trip_p99_us);
    visit("path_mtu", self.path_mtu), visit("datagram", self.datagram), visit("back_datagram", self.back_datagram);
    visit("wanted_datagram", self.wanted_datagram), visit("back_wanted", self.back_wanted);
    visit("large_passed", self.large_passed), visit("error", self.error), visit("there", self.there);
    visit("here", self.here), visit("streams", self.streams), visit("resent", self.resent);
  }
};

}  // namespace tutti::tools::doctor
