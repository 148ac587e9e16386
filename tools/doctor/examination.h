#pragma once
// Examination: all that one run of the doctor has found out and what it makes of it. What is saved, compared and shown.
#include <string>
#include <vector>

#include "tools/doctor/facts.h"
#include "tools/doctor/pair.h"

namespace tutti::tools::doctor {

enum class Verdict { pass, note, warn, fail };
NLOHMANN_JSON_SERIALIZE_ENUM(
    Verdict, {{Verdict::pass, "pass"}, {Verdict::note, "note"}, {Verdict::warn, "warn"}, {Verdict::fail, "fail"}})

struct Finding {
  std::string topic;  // "bandwidth", "clock": one word, stable
  std::string about;  // a host, a pair of hosts, or "" for all
  Verdict verdict = Verdict::pass;
  std::string text, cure;  // cure: what to try; "" for a pass
  static void fields(auto& self, auto&& visit) {
    visit("topic", self.topic), visit("about", self.about), visit("verdict", self.verdict), visit("text", self.text);
    visit("cure", self.cure);
  }
};

// A host's clock against that of rank 0.
struct ClockDifference {
  int rank = 0;
  double seconds = 0, uncertainty = 0;  // theirs minus ours; half the round trip
  static void fields(auto& self, auto&& visit) {
    visit("rank", self.rank), visit("seconds", self.seconds), visit("uncertainty", self.uncertainty);
  }
};

// A small all-reduce by the library itself.
struct Trial {
  std::string what, transport, error;  // "2 ranks of this host over shm"; error: "" when the sums were right
  double milliseconds = 0;             // of one all-reduce
  static void fields(auto& self, auto&& visit) {
    visit("what", self.what), visit("transport", self.transport), visit("error", self.error);
    visit("milliseconds", self.milliseconds);
  }
};

// What the counters of a host's interface have grown by while pairs were measured.
struct Growth {
  int rank = 0;
  std::string interface;
  std::uint64_t packets = 0, errors = 0, dropped = 0;
  static void fields(auto& self, auto&& visit) {
    visit("rank", self.rank), visit("interface", self.interface), visit("packets", self.packets);
    visit("errors", self.errors), visit("dropped", self.dropped);
  }
};

struct Missing {
  int rank = 0;
  std::string text;
  static void fields(auto& self, auto&& visit) { visit("rank", self.rank), visit("text", self.text); }
};

struct Examination {
  std::string version, when;  // when: "2026-05-01 12:00:00 UTC"
  int rank_count = 1;
  std::vector<Facts> hosts;  // one a host, by its lowest rank
  std::vector<Pair> pairs;
  std::vector<ClockDifference> clocks;
  std::vector<Growth> growth;
  std::vector<Trial> trials;
  std::vector<Missing> missing;
  std::vector<std::string> strangers;  // who connected to rank 0 and could not prove the key
  std::vector<Finding> findings;
  static void fields(auto& self, auto&& visit) {
    visit("version", self.version), visit("when", self.when), visit("rank_count", self.rank_count);
    visit("hosts", self.hosts), visit("pairs", self.pairs), visit("clocks", self.clocks);
    visit("growth", self.growth), visit("trials", self.trials), visit("missing", self.missing),
        visit("strangers", self.strangers);
    visit("findings", self.findings);
  }
  Verdict worst() const;
};

}  // namespace tutti::tools::doctor
