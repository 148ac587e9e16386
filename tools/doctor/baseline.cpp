#include "tools/doctor/baseline.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>

#include "tools/doctor/findings.h"

namespace tutti::tools::doctor {
namespace {

// Two runs on a shared machine differ by up to 2; a bandwidth that the processors limited is not compared.
constexpr double kSlower = 0.7, kLater = 2.5, kDiskSlower = 0.3, kBusy = 0.7;

struct Row {
  const char* what;
  std::function<std::string(const Facts&)> value;
};

const Interface* first_nic(const Facts& facts) {
  return facts.chosen.empty() ? nullptr : interface_of(facts, facts.chosen[0]);
}

std::string links(const Facts& facts) {
  std::string out;
  for (const PciLink& link : facts.pci)
    out += fmt::format("{}{} x{}", out.empty() ? "" : ", ", link.device, link.width);
  return out;
}

const std::vector<Row>& rows() {
  static const std::vector<Row> all = {
      {"tutti", [](const Facts& f) { return f.version; }},
      {"settings", [](const Facts& f) { return f.settings; }},
      {"kernel", [](const Facts& f) { return f.kernel; }},
      {"driver", [](const Facts& f) { return f.driver; }},
      {"CUDA", [](const Facts& f) { return f.cuda; }},
      {"GPUs", [](const Facts& f) { return fmt::format("{}", fmt::join(f.gpus, ", ")); }},
      {"cores", [](const Facts& f) { return std::to_string(f.cores); }},
      {"quota", [](const Facts& f) { return fmt::format("{:g}", f.quota); }},
      {"memory", [](const Facts& f) { return bytes_text(f.memory); }},
      {"offered addresses", [](const Facts& f) { return fmt::format("{}", fmt::join(f.chosen, ", ")); }},
      {"link speed", [](const Facts& f) { return first_nic(f) ? fmt::format("{} Mb/s", first_nic(f)->megabits) : ""; }},
      {"MTU", [](const Facts& f) { return first_nic(f) ? std::to_string(first_nic(f)->mtu) : ""; }},
      {"open files", [](const Facts& f) { return bytes_text(f.open_files); }},
      {"locked memory", [](const Facts& f) { return bytes_text(f.locked_memory); }},
      {"PCIe", links},
      {"RDMA ports", [](const Facts& f) { return std::to_string(f.rdma.size()); }},
  };
  return all;
}

// By name where that is unique in both, else by rank.
const Facts* same_host(const std::vector<Facts>& hosts, const std::vector<std::string>& names, const Facts& wanted,
                       const std::string& name) {
  for (std::size_t i = 0; i < hosts.size(); ++i)
    if (names[i] == name) return &hosts[i];
  for (const Facts& facts : hosts)
    if (facts.rank == wanted.rank && facts.host == wanted.host) return &facts;
  return nullptr;
}

class Comparison {
 public:
  Comparison(const Examination& before, const Examination& now) : before_(before), now_(now) {}
  std::vector<Finding> all() {
    const auto names = name_hosts(now_.hosts), old_names = name_hosts(before_.hosts);
    for (std::size_t i = 0; i < names.size(); ++i) {
      const Facts* old = same_host(before_.hosts, old_names, now_.hosts[i], names[i]);
      if (old)
        host(*old, now_.hosts[i], names[i]);
      else
        add(names[i], Verdict::note, "this host was not there then", "");
    }
    for (std::size_t i = 0; i < old_names.size(); ++i)
      if (!same_host(now_.hosts, names, before_.hosts[i], old_names[i]))
        add(old_names[i], Verdict::note, "this host was there then, and is not now", "");
    for (const Pair& pair : now_.pairs)
      for (const Pair& old : before_.pairs)
        if (old.from == pair.from && old.to == pair.to) pairs(old, pair);
    if (out_.empty())
      out_.push_back(
          {"baseline", "", Verdict::pass,
           fmt::format("as on {}: {} rows of {} host{}, {} pair{}", before_.when, rows().size(), names.size(),
                       names.size() == 1 ? "" : "s", now_.pairs.size(), now_.pairs.size() == 1 ? "" : "s"),
           ""});
    return std::move(out_);
  }

 private:
  void add(const std::string& about, Verdict verdict, std::string text, std::string cure) {
    out_.push_back({"baseline", about, verdict, std::move(text), std::move(cure)});
  }
  void host(const Facts& old, const Facts& facts, const std::string& name) {
    for (const Row& row : rows()) {
      const std::string then = row.value(old), today = row.value(facts);
      if (then != today)
        add(name, Verdict::note,
            fmt::format("{}: {} now, {} on {}", row.what, today.empty() ? "none" : today, then.empty() ? "none" : then,
                        before_.when),
            "if you have not changed it, find out who did");
    }
    if (facts.disk.folder == old.disk.folder && old.disk.bytes_per_second > 0 && facts.disk.bytes_per_second > 0 &&
        facts.disk.bytes_per_second < kDiskSlower * old.disk.bytes_per_second)
      add(name, Verdict::note,
          fmt::format("disk: {} now, {} on {}", rate_text(facts.disk.bytes_per_second),
                      rate_text(old.disk.bytes_per_second), before_.when),
          "another writer, or a disk that is nearly full");
  }
  void flow(const Flow& old, const Flow& today, const std::string& about) {
    if (old.bytes_per_second <= 0 || today.bytes_per_second >= kSlower * old.bytes_per_second || today.busy >= kBusy)
      return;
    add(about, Verdict::warn,
        fmt::format("bandwidth: {} now, {} on {}", rate_text(today.bytes_per_second), rate_text(old.bytes_per_second),
                    before_.when),
        "what has changed on the path since then: switch, cable, shaper, other traffic");
  }
  void pairs(const Pair& old, const Pair& today) {
    const std::string a = name_of(today.from), b = name_of(today.to);
    flow(old.there, today.there, fmt::format("{} to {}", a, b));
    flow(old.here, today.here, fmt::format("{} to {}", b, a));
    const bool idle = std::max(today.there.busy, today.here.busy) < kBusy;
    if (idle && old.round_trip_us > 0 && today.round_trip_us > kLater * old.round_trip_us)
      add(fmt::format("{} and {}", a, b), Verdict::note,
          fmt::format("round trip: {:.0f} µs now, {:.0f} µs on {}", today.round_trip_us, old.round_trip_us,
                      before_.when),
          "another path, or busy hosts");
    if (old.path_mtu != today.path_mtu && today.path_mtu > 0)
      add(fmt::format("{} and {}", a, b), Verdict::warn,
          fmt::format("path MTU: {} now, {} on {}", today.path_mtu, old.path_mtu, before_.when),
          "an interface or switch port whose MTU was changed");
  }
  std::string name_of(int rank) const {
    const auto names = name_hosts(now_.hosts);
    for (std::size_t i = 0; i < names.size(); ++i)
      if (now_.hosts[i].rank == rank) return names[i];
    return fmt::format("rank {}", rank);
  }

  const Examination &before_, &now_;
  std::vector<Finding> out_;
};

}  // namespace

std::vector<Finding> compare(const Examination& before, const Examination& now) {
  return Comparison(before, now).all();
}

Result<Examination> read_examination(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  if (!stream) return Status(Code::invalid_argument, file + " cannot be read");
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  auto read = parse<Examination>(text);
  if (!read)
    return Status(Code::invalid_argument,
                  fmt::format("{}: {}; want what --save or --json has written", file, read.status().text()));
  if (read->hosts.empty())
    return Status(Code::invalid_argument,
                  fmt::format("{} tells of no host; want what --save or --json has written", file));
  return read;
}

}  // namespace tutti::tools::doctor
