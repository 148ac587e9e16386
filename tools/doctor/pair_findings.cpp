// What two hosts find of each other comes to. See findings.h.
#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "tools/doctor/findings.h"
#include "tools/doctor/sockets.h"

namespace tutti::tools::doctor {
namespace {

// Shares of the slower link's speed. TCP over Ethernet carries 94 % of it in 1500-byte packets.
constexpr double kPass = 0.75, kWarn = 0.5, kFail = 0.02;
// Ends that ran, or wanted to, for more of the time than this were short of processor time.
constexpr double kBusy = 0.7;
constexpr double kLossNote = 0.005, kLossWarn = 0.05;

bool any_connected(const std::vector<Attempt>& attempts) {
  return std::any_of(attempts.begin(), attempts.end(), [](const Attempt& a) { return a.reach == Reach::connected; });
}

class PairFindings {
 public:
  PairFindings(const Pair& pair, const Facts& from, const Facts& to, std::string from_name, std::string to_name)
      : pair_(pair),
        from_(from),
        to_(to),
        from_name_(std::move(from_name)),
        to_name_(std::move(to_name)),
        both_(fmt::format("{} and {}", from_name_, to_name_)) {}
  std::vector<Finding> all() {
    reach(pair_.attempts, fmt::format("{} to {}", from_name_, to_name_));
    reach(pair_.back, fmt::format("{} to {}", to_name_, from_name_));
    if (pair_.from_address.empty()) {
      if (!pair_.error.empty()) add("reach", Verdict::fail, pair_.error, "read what `tutti doctor` says on both hosts");
      return std::move(out_);
    }
    round_trip();
    mtu();
    bandwidth(pair_.there, fmt::format("{} to {}", from_name_, to_name_));
    bandwidth(pair_.here, fmt::format("{} to {}", to_name_, from_name_));
    losses();
    return std::move(out_);
  }

 private:
  void add(const char* topic, Verdict verdict, std::string text, std::string cure = "", std::string about = "") {
    out_.push_back({topic, about.empty() ? both_ : about, verdict, std::move(text), std::move(cure)});
  }
  void reach(const std::vector<Attempt>& attempts, const std::string& about);
  void round_trip();
  void mtu();
  void bandwidth(const Flow& flow, const std::string& about);
  void losses();
  std::string without_pause() const;
  // Of the interfaces in use; 0 when a driver does not say.
  double link_speed() const;

  const Pair& pair_;
  const Facts &from_, &to_;
  const std::string from_name_, to_name_, both_;
  std::vector<Finding> out_;
};

void PairFindings::reach(const std::vector<Attempt>& attempts, const std::string& about) {
  if (attempts.empty()) return;
  if (!any_connected(attempts)) {
    for (const Attempt& attempt : attempts) out_.push_back(reach_finding(attempt, about));
    return;
  }
  bool first = true;
  for (const Attempt& attempt : attempts) {
    Finding finding = reach_finding(attempt, about);
    // Several addresses are raced at start: one that works is enough, but the best one should.
    if (finding.verdict == Verdict::fail) finding.verdict = first ? Verdict::warn : Verdict::note;
    if (finding.verdict == Verdict::warn) finding.cure += "; or leave that interface out: TUTTI_INTERFACE=^NAME";
    out_.push_back(std::move(finding));
    first = false;
  }
}

void PairFindings::round_trip() {
  if (pair_.round_trip_us > 0)
    add("round trip", Verdict::pass,
        fmt::format("{:.0f} µs, 99 of 100 within {:.0f} µs", pair_.round_trip_us, pair_.round_trip_p99_us));
}

void PairFindings::mtu() {
  const auto lost = [](int got, int wanted) { return got > 0 && wanted > 0 && got < wanted; };
  const bool there = lost(pair_.datagram, pair_.wanted_datagram), here = lost(pair_.back_datagram, pair_.back_wanted);
  const std::string path = there ? fmt::format("packets of {} bytes from {} arrive, of {} do not", pair_.datagram,
                                               from_name_, pair_.wanted_datagram)
                                 : fmt::format("packets of {} bytes from {} arrive, of {} do not", pair_.back_datagram,
                                               to_name_, pair_.back_wanted);
  const char* cure =
      "the same MTU on all hosts and switches of the path; let ICMP \"fragmentation needed\" through the firewalls; "
      "meanwhile `ip link set DEVICE mtu 1500`";
  if (!pair_.large_passed) {
    if (!pair_.error.empty() && pair_.round_trip_us > 0)
      add("MTU", Verdict::fail,
          fmt::format("small messages pass and large ones stall ({}){}", pair_.error, there || here ? ": " + path : ""),
          cure);
    else
      add("reach", Verdict::fail, pair_.error,
          "the connection breaks after it is made: a firewall, or the process there ended");
  } else if (there || here) {
    add("MTU", Verdict::warn, path + "; TCP has found a way around, at smaller segments", cure);
  } else if (pair_.datagram == 0) {
    add("MTU", Verdict::pass,
        fmt::format("{} by the kernel; 256 KiB over TCP arrived (UDP does not pass, so no more is known)",
                    pair_.path_mtu));
  } else {
    add("MTU", Verdict::pass, fmt::format("{}, full packets arrive", pair_.path_mtu));
  }
}

double PairFindings::link_speed() const {
  const Interface* a = interface_of(from_, host_of(pair_.from_address));
  const Interface* b = interface_of(to_, host_of(pair_.to_address));
  const std::int64_t x = a ? a->megabits : 0, y = b ? b->megabits : 0;
  return double(x > 0 && y > 0 ? std::min(x, y) : std::max(x, y)) * 1e6 / 8;
}

void PairFindings::bandwidth(const Flow& flow, const std::string& about) {
  if (!pair_.large_passed) return;
  if (flow.bytes_per_second <= 0)
    return add("bandwidth", Verdict::fail, fmt::format("no flow of data: {}", flow.error),
               "losses on the path, or a process that stands still", about);
  const double link = link_speed(), share = link > 0 ? flow.bytes_per_second / link : 1;
  if (link <= 0)
    return add("bandwidth", Verdict::pass,
               fmt::format("{} (the drivers state no speed to compare with)", rate_text(flow.bytes_per_second)), "",
               about);
  // 1.08 of 1.25 GB/s
  const double unit = link >= 1e9 ? 1e9 : 1e6;
  const int digits = unit == 1e9 ? 2 : 0;
  const std::string text = fmt::format("{:.{}f} of {:.{}f} {}: {:.0f} %", flow.bytes_per_second / unit, digits,
                                       link / unit, digits, unit == 1e9 ? "GB/s" : "MB/s", share * 100);
  if (share >= kPass) return add("bandwidth", Verdict::pass, text + ", pass", "", about);
  if (flow.busy >= kBusy)
    return add("bandwidth", Verdict::note,
               fmt::format("{}; the processors were the limit ({:.0f} % busy), not the link", text, flow.busy * 100),
               "more sockets a pair (TUTTI_SOCKETS), fewer other programs, or a higher quota", about);
  const Verdict verdict = share < kFail ? Verdict::fail : share < kWarn ? Verdict::warn : Verdict::note;
  add("bandwidth", verdict,
      fmt::format("{}, and the processors were idle: the path is slower than the link says", text),
      "a switch port or cable at a lower speed, other traffic, or a shaper: `tc qdisc`, `ethtool`", about);
}

// Where full buffers cannot make senders wait.
std::string PairFindings::without_pause() const {
  std::string out;
  for (const auto& [facts, address, name] :
       {std::tuple(&from_, &pair_.from_address, &from_name_), std::tuple(&to_, &pair_.to_address, &to_name_)}) {
    const Interface* nic = interface_of(*facts, host_of(*address));
    if (nic && nic->pause == "off") out += fmt::format("; pause frames are off on {} of {}", nic->name, *name);
  }
  return out;
}

void PairFindings::losses() {
  if (pair_.resent > kLossNote)
    add("retransmits", pair_.resent > kLossWarn ? Verdict::warn : Verdict::note,
        fmt::format("{:.1f} % of TCP's segments were sent again during the test{}", pair_.resent * 100,
                    without_pause()),
        "losses: cable, transceiver, a switch whose buffers are full (pause frames: `ethtool -A DEVICE rx on tx on`, "
        "and on the switch), or a shaper",
        from_name_);
}

}  // namespace

std::vector<Finding> pair_findings(const Pair& pair, const Facts& from, const Facts& to, const std::string& from_name,
                                   const std::string& to_name) {
  return PairFindings(pair, from, to, from_name, to_name).all();
}

}  // namespace tutti::tools::doctor
