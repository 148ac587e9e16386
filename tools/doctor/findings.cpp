#include "tools/doctor/findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tutti::tools::doctor {
namespace {

// Clocks kept by NTP differ by milliseconds. Beyond a second, times in logs and files of two hosts cannot be compared.
constexpr double kClockNote = 0.1, kClockWarn = 1.0;

template <class T>
void append(std::vector<T>& to, std::vector<T> more) {
  to.insert(to.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

const Facts* host_of_rank(const std::vector<Facts>& hosts, int rank) {
  for (const Facts& facts : hosts)
    if (facts.rank == rank) return &facts;
  return nullptr;
}

std::string name_of_rank(const std::vector<Facts>& hosts, int rank) {
  const auto names = name_hosts(hosts);
  for (std::size_t i = 0; i < hosts.size(); ++i)
    if (hosts[i].rank == rank) return names[i];
  return fmt::format("rank {}", rank);
}

void add_trials(const Examination& examination, std::vector<Finding>& out) {
  for (const Trial& trial : examination.trials) {
    const std::string what =
        fmt::format("all_reduce of 64 KiB by {} over {}", trial.what, trial.transport.empty() ? "?" : trial.transport);
    if (trial.error.empty())
      out.push_back(
          {"library", "", Verdict::pass, fmt::format("{}: right sums, {:.3g} ms", what, trial.milliseconds), ""});
    else
      out.push_back(
          {"library", "", Verdict::fail, fmt::format("{}: {}", what, trial.error),
           "look at the other findings first; then run with TUTTI_LOG=info, which shows addresses and transports"});
  }
}

void add_missing(const Examination& examination, std::vector<Finding>& out) {
  const int here =
      examination.rank_count - int(std::count_if(examination.missing.begin(), examination.missing.end(),
                                                 [](const Missing& m) { return m.text.starts_with("did not"); }));
  for (const Missing& missing : examination.missing)
    out.push_back(
        {"missing", fmt::format("rank {}", missing.rank), Verdict::fail,
         fmt::format("rank {} {} ({} of {} ranks came)", missing.rank, missing.text, here, examination.rank_count),
         "read what its own `tutti doctor` says there; if it says nothing, it was not started"});
  for (const std::string& stranger : examination.strangers)
    out.push_back({"strangers", "", Verdict::note,
                   fmt::format("somebody called rank 0's port and is no rank of this job: {}", stranger),
                   "the same TUTTI_JOB_KEY on all hosts? Otherwise a port scanner or a monitor, which does no harm"});
}

}  // namespace

Verdict Examination::worst() const {
  Verdict worst = Verdict::pass;
  for (const Finding& finding : findings) worst = std::max(worst, finding.verdict);
  return worst;
}

std::string rate_text(double bytes_per_second) {
  if (bytes_per_second >= 1e9) return fmt::format("{:.2f} GB/s", bytes_per_second / 1e9);
  if (bytes_per_second >= 1e6) return fmt::format("{:.0f} MB/s", bytes_per_second / 1e6);
  return fmt::format("{:.0f} kB/s", bytes_per_second / 1e3);
}

std::string bytes_text(std::uint64_t bytes) {
  if (bytes == kUnlimited) return "unlimited";
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = double(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(units)) value /= 1024, ++unit;
  return fmt::format("{:.{}f} {}", value, value < 10 && value != std::floor(value) ? 1 : 0, units[unit]);
}

Finding reach_finding(const Attempt& attempt, const std::string& about) {
  const auto fail = [&](std::string text, std::string cure) {
    return Finding{"reach", about, Verdict::fail, fmt::format("{}: {}", attempt.address, text), std::move(cure)};
  };
  switch (attempt.reach) {
    case Reach::connected: return {"reach", about, Verdict::pass, attempt.address + ": connected", ""};
    case Reach::refused:
      return fail("refused: the host answers, and nothing listens on this port (or a firewall rejects)",
                  "start the job on that host too, with the same address and port; `ss -ltnp` there shows who listens");
    case Reach::filtered:
      return attempt.host_answers
                 ? fail("filtered: the host answers on other ports, this one stays silent: a firewall drops it",
                        "open the port there (`nft list ruleset`, the cloud's security group), or set TUTTI_PORT_RANGE "
                        "to an open range")
                 : fail(
                       "no answer at all: a firewall drops everything, the address is wrong, or the route leads "
                       "nowhere",
                       "`ip route get ADDRESS` here; compare the address with `ip addr` there");
    case Reach::unreachable:
      return fail("unreachable: " + attempt.text,
                  "no host has this address on this network, or there is no route: compare with `ip addr` there");
    case Reach::stranger:
      return fail("someone else answers: " + attempt.text,
                  "another program holds this port, or the job key differs: choose another port, set the same "
                  "TUTTI_JOB_KEY on all hosts");
    case Reach::failed: return fail(attempt.text, "the text names the call that failed");
    case Reach::untried: break;
  }
  return fail("was not tried", "");
}

std::vector<Finding> clock_findings(const std::vector<ClockDifference>& clocks, const std::vector<Facts>& hosts) {
  std::vector<Finding> out;
  double most = 0;
  for (const ClockDifference& clock : clocks) {
    const double sure = std::max(0.0, std::abs(clock.seconds) - clock.uncertainty);
    most = std::max(most, std::abs(clock.seconds));
    if (sure <= kClockNote) continue;
    out.push_back({"clock", name_of_rank(hosts, clock.rank), sure > kClockWarn ? Verdict::warn : Verdict::note,
                   fmt::format("the clock is {:.3g} s {} that of {}", std::abs(clock.seconds),
                               clock.seconds > 0 ? "ahead of" : "behind", name_of_rank(hosts, 0)),
                   "start a time service (chrony, systemd-timesyncd) on both: `timedatectl`"});
  }
  if (out.empty() && !clocks.empty())
    out.push_back(
        {"clock", "", Verdict::pass, fmt::format("the hosts' clocks agree within {:.1f} ms", most * 1e3), ""});
  return out;
}

std::vector<Finding> growth_findings(const Growth& growth, const std::string& host) {
  constexpr double kDropNote = 1e-3;      // of packets; a host drops a few that are not for it
  std::vector<Finding> out;
  if (growth.errors > 0)
    out.push_back(
        {"NIC errors", host, Verdict::warn,
         fmt::format("{}: {} errors in {} packets during the test", growth.interface, growth.errors, growth.packets),
         fmt::format("cable, transceiver or port, now: `ethtool -S {}` shows which counter grows", growth.interface)});
  if (growth.dropped > 10 && double(growth.dropped) > kDropNote * double(growth.packets))
    out.push_back({"NIC drops", host, Verdict::note,
                   fmt::format("{}: {} of {} packets were dropped during the test", growth.interface, growth.dropped,
                               growth.packets),
                   fmt::format("larger rings: `ethtool -G {}`; flow control: `ethtool -A {} rx on tx on`",
                               growth.interface, growth.interface)});
  return out;
}

std::vector<Finding> examine(const Examination& examination) {
  std::vector<Finding> out;
  const auto& hosts = examination.hosts;
  const auto names = name_hosts(hosts);
  add_missing(examination, out);
  append(out, difference_findings(hosts));
  for (std::size_t i = 0; i < hosts.size(); ++i) append(out, host_findings(hosts[i], names[i], examination.rank_count));
  for (const Pair& pair : examination.pairs) {
    const Facts *from = host_of_rank(hosts, pair.from), *to = host_of_rank(hosts, pair.to);
    if (from && to)
      append(out, pair_findings(pair, *from, *to, name_of_rank(hosts, pair.from), name_of_rank(hosts, pair.to)));
  }
  for (const Growth& growth : examination.growth)
    append(out, growth_findings(growth, name_of_rank(hosts, growth.rank)));
  append(out, clock_findings(examination.clocks, hosts));
  add_trials(examination, out);
  return out;
}

}  // namespace tutti::tools::doctor
