#include "comm/profile.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <tutti/version.h>

#include "core/host.h"
#include "core/log.h"

namespace tutti::comm {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::uint8_t kMarkFlag = 0x80;
constexpr std::uint64_t kNeverLent = ~std::uint64_t(0);      // on the wire
constexpr int kFormat = 5;
constexpr double kMostTrialSeconds = 10;
constexpr std::size_t kMostFileBytes = 64 << 10;   // of a profile; a larger file is something else

bool within(double value, double least, double most) { return std::isfinite(value) && value >= least && value <= most; }

double clamp(double value, double least, double most) {
  return std::isfinite(value) ? std::clamp(value, least, most) : most;
}

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(':');
    const bool names = line.starts_with("model name") || line.starts_with("CPU part") || line.starts_with("cpu model");
    if (names && colon != std::string::npos) return line.substr(std::min(line.size(), colon + 2));
  }
  return "unknown";
}

Json json_of(const MachineKey& key) {
  return {{"processor", key.processor},
          {"cores", key.cores},
          {"kernel", key.kernel},
          {"tutti", key.version},
          {"settings", key.settings}};
}

MachineKey key_from(const Json& json) {
  return {json.at("processor").get<std::string>(), json.at("kernel").get<std::string>(),
          json.at("tutti").get<std::string>(), json.at("settings").get<std::string>(), json.at("cores").get<int>()};
}

std::string link_name(int medium, int crowded) {
  return fmt::format("{}{}", kMediumNames[medium], crowded ? ", crowded" : "");
}

// Throws Json::exception.
Status read_links(const Json& links, Figures& out) {
  for (const auto& [name, figures] : links.items()) {
    bool known = false;
    for (int medium = 0; medium < kMediumCount; ++medium) {
      for (int crowded = 0; crowded < 2; ++crowded) {
        if (name != link_name(medium, crowded)) continue;
        known = true;
        LinkFigures link{figures.at("alpha_s").get<double>(), figures.at("message_s").get<double>(),
                         figures.at("beta_s_per_byte").get<double>(), {}};
        if (figures.contains("lend_from_bytes")) link.lend_from = figures.at("lend_from_bytes").get<std::uint64_t>();
        if (!plausible(link)) return Status(Code::invalid_argument, fmt::format("the figures of {} are absurd", name));
        out.links[std::size_t(medium)][std::size_t(crowded)] = link;
      }
    }
    if (!known) return Status(Code::invalid_argument, fmt::format("no link is called '{}'", name));
  }
  return {};
}

// Throws Json::exception.
Status read_trials(const Json& all, Profile& out) {
  for (const Json& one : all) {
    const auto name = one.at("over").get<std::string>();
    const auto medium = std::find(std::begin(kMediumNames), std::end(kMediumNames), name);
    if (medium == std::end(kMediumNames))
      return Status(Code::invalid_argument, fmt::format("no link is called '{}'", name));
    Trials trials{one.at("ranks").get<int>(), one.at("shape").get<std::string>(), {}};
    for (const Collective what : kTried)
      for (const Json& time : one.at(std::string(name_of(what))))
        trials.times.push_back({time.at("algorithm").get<std::string>(), time.at("bytes").get<std::uint64_t>(),
                                time.at("seconds").get<double>(), what});
    const bool sane = trials.ranks > 1 && trials.ranks <= kMostTrialRanks && trials.times.size() <= kMostTrials &&
                      std::all_of(trials.times.begin(), trials.times.end(), [](const Trial& t) {
                        return t.bytes > 0 && within(t.seconds, kLeastSeconds, kMostTrialSeconds);
                      });
    if (!sane) return Status(Code::invalid_argument, "the times of trials are absurd");
    out.keep(Medium(medium - std::begin(kMediumNames)), std::move(trials));
  }
  return {};
}

std::string read_whole(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMostFileBytes, '\0');
  file.read(text.data(), std::streamsize(text.size()));
  text.resize(std::size_t(file.gcount()));
  return text;
}

Status cannot(const char* what, const std::string& path) {
  return Status(Code::network, fmt::format("cannot {} {}: {}", what, path, std::strerror(errno)));
}

}  // namespace

bool plausible(const LinkFigures& f) {
  return within(f.alpha, kLeastSeconds, kMostSeconds) && within(f.message, kLeastSeconds, kMostSeconds) &&
         within(f.beta, kLeastPerByte, kMostPerByte);
}

bool plausible(const ReductionFigures& f) {
  return within(f.cached, kLeastPerByte, kMostPerByte) && within(f.memory, kLeastPerByte, kMostPerByte);
}

LinkFigures bounded(LinkFigures f) {
  return {clamp(f.alpha, kLeastSeconds, kMostSeconds), clamp(f.message, kLeastSeconds, kMostSeconds),
          clamp(f.beta, kLeastPerByte, kMostPerByte), f.lend_from};
}

ReductionFigures bounded(ReductionFigures f) {
  return {clamp(f.cached, kLeastPerByte, kMostPerByte), clamp(f.memory, kLeastPerByte, kMostPerByte)};
}

std::optional<LinkFigures> slower(const std::optional<LinkFigures>& a, const std::optional<LinkFigures>& b) {
  if (!a || !b) return a ? a : b;
  LinkFigures out{std::max(a->alpha, b->alpha), std::max(a->message, b->message), std::max(a->beta, b->beta), {}};
  if (a->lend_from && b->lend_from) out.lend_from = std::max(*a->lend_from, *b->lend_from);
  return out;
}

Figures slower(const Figures& a, const Figures& b) {
  Figures out;
  for (std::size_t m = 0; m < kMediumCount; ++m)
    for (std::size_t c = 0; c < 2; ++c) out.links[m][c] = slower(a.links[m][c], b.links[m][c]);
  out.reduction = a.reduction ? a.reduction : b.reduction;
  if (a.reduction && b.reduction)
    out.reduction = ReductionFigures{std::max(a.reduction->cached, b.reduction->cached),
                                     std::max(a.reduction->memory, b.reduction->memory)};
  out.trials_mark = a.trials_mark == b.trials_mark ? a.trials_mark : 0;
  return out;
}

Figures overlaid(Figures under, const Figures& over) {
  for (std::size_t m = 0; m < kMediumCount; ++m)
    for (std::size_t c = 0; c < 2; ++c)
      if (over.links[m][c]) under.links[m][c] = over.links[m][c];
  if (over.reduction) under.reduction = over.reduction;
  return under;
}

// A byte of flags, then the figures that are there.
void encode(const Figures& figures, ByteWriter& to) {
  std::uint8_t flags = figures.reduction ? 1 << (2 * kMediumCount) : 0;
  std::vector<std::uint64_t> values;
  const auto add = [&](auto value) { values.push_back(std::bit_cast<std::uint64_t>(value)); };
  for (std::size_t i = 0; i < 2 * kMediumCount; ++i) {
    const auto& link = figures.links[i / 2][i % 2];
    if (!link) continue;
    flags = std::uint8_t(flags | 1u << i);
    for (const double value : {link->alpha, link->message, link->beta}) add(value);
    add(link->lend_from.value_or(kNeverLent));
  }
  if (figures.reduction)
    for (const double value : {figures.reduction->cached, figures.reduction->memory}) add(value);
  if (figures.trials_mark != 0) flags |= kMarkFlag;
  to.number(flags);
  for (const std::uint64_t value : values) to.number(value);
  if (figures.trials_mark != 0) to.number(figures.trials_mark);
}

Figures decode_figures(ByteReader& from) {
  const auto flags = from.number<std::uint8_t>();
  const auto value = [&] { return std::bit_cast<double>(from.number<std::uint64_t>()); };
  Figures out;
  for (std::size_t i = 0; i < 2 * kMediumCount; ++i) {
    if (!(flags >> i & 1)) continue;
    LinkFigures link;
    link.alpha = value();
    link.message = value();
    link.beta = value();
    if (const auto from_bytes = from.number<std::uint64_t>(); from_bytes != kNeverLent) link.lend_from = from_bytes;
    if (plausible(link)) out.links[i / 2][i % 2] = link;
  }
  if (flags >> (2 * kMediumCount) & 1) {
    ReductionFigures reduction;
    reduction.cached = value();
    reduction.memory = value();
    if (plausible(reduction)) out.reduction = reduction;
  }
  if (flags & kMarkFlag) out.trials_mark = from.number<std::uint64_t>();
  return out;
}

const Trials* Profile::find(Medium medium, int ranks, const std::string& shape) const {
  const auto found = std::find_if(trials.begin(), trials.end(), [&](const OfRanks& t) {
    return t.medium == medium && t.trials.ranks == ranks && t.trials.shape == shape;
  });
  return found == trials.end() ? nullptr : &found->trials;
}

std::uint64_t Profile::mark(int ranks) const {
  std::uint64_t out = 0;
  for (const OfRanks& t : trials)
    if (t.trials.ranks == ranks) out ^= mark_of(t.trials) * (2 * std::uint64_t(t.medium) + 1);
  return out;
}

void Profile::keep(Medium medium, Trials of_ranks) {
  std::erase_if(trials, [&](const OfRanks& t) {
    return t.medium == medium && t.trials.ranks == of_ranks.ranks && t.trials.shape == of_ranks.shape;
  });
  if (trials.size() == kMostKept) trials.erase(trials.begin());
  trials.push_back({medium, std::move(of_ranks)});
}

MachineKey key_of_this_machine(const Settings& settings) {
  utsname kernel{};
  ::uname(&kernel);
  return {processor(), kernel.release, TUTTI_VERSION_STRING,
          fmt::format("crc {}, segment {}, sockets {}, spin {} us, simd {}, cma {}{}", settings.crc, settings.segment, settings.sockets,
                      settings.spin.count(), settings.simd.empty() ? "best" : settings.simd, settings.cma,
                      settings.cma_threshold ? " from " + to_text(*settings.cma_threshold) : ""),
          read_host_facts().cores};
}

std::string profile_folder() {
  const std::string cache = environment("XDG_CACHE_HOME"), home = environment("HOME");
  if (cache.starts_with("/")) return cache + "/tutti";  // relative ones are to be ignored, says the XDG specification
  return home.empty() ? "" : home + "/.cache/tutti";
}

std::string profile_path(const std::string& folder, const MachineKey& key) {
  std::uint64_t hash = 0xcbf29ce484222325ull + kFormat;  // FNV-1a; versions side by side do not take each other's file
  for (const char c : json_of(key).dump()) hash = (hash ^ std::uint8_t(c)) * 0x100000001b3ull;
  return fmt::format("{}/profile-{:016x}.json", folder, hash);
}

std::string profile_text(const MachineKey& key, const Profile& profile) {
  const Figures& figures = profile.figures;
  Json links = Json::object();
  for (int medium = 0; medium < kMediumCount; ++medium)
    for (int crowded = 0; crowded < 2; ++crowded)
      if (const auto& link = figures.link(Medium(medium), crowded)) {
        Json& json = links[link_name(medium, crowded)];
        json = {{"alpha_s", link->alpha}, {"message_s", link->message}, {"beta_s_per_byte", link->beta}};
        if (link->lend_from) json["lend_from_bytes"] = *link->lend_from;
      }
  Json json{{"format", kFormat}, {"machine", json_of(key)}, {"links", links}};
  if (figures.reduction)
    json["reduction"] = {{"cached_s_per_byte", figures.reduction->cached},
                         {"memory_s_per_byte", figures.reduction->memory}};
  for (const auto& [medium, trials] : profile.trials) {
    Json one = {{"over", kMediumNames[std::size_t(medium)]}, {"ranks", trials.ranks}, {"shape", trials.shape}};
    for (const Collective what : kTried) one[std::string(name_of(what))] = Json::array();
    for (const Trial& t : trials.times)
      one[std::string(name_of(t.collective))].push_back({{"algorithm", t.algorithm}, {"bytes", t.bytes}, {"seconds", t.seconds}});
    json["trials"].push_back(one);
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<Profile> parse_profile(const std::string& text, const MachineKey& key) {
  Profile profile;
  Figures& out = profile.figures;
  try {
    const Json json = Json::parse(text);
    if (json.at("format").get<int>() != kFormat) return Status(Code::invalid_argument, "it has another format");
    if (key_from(json.at("machine")) != key) return Status(Code::invalid_argument, "it is of another machine");
    if (Status status = read_links(json.at("links"), out); !status) return status;
    if (json.contains("reduction")) {
      const Json& reduction = json.at("reduction");
      out.reduction = ReductionFigures{reduction.at("cached_s_per_byte").get<double>(),
                                       reduction.at("memory_s_per_byte").get<double>()};
      if (!plausible(*out.reduction)) return Status(Code::invalid_argument, "the figures of reductions are absurd");
    }
    if (json.contains("trials"))
      if (Status status = read_trials(json.at("trials"), profile); !status) return status;
  } catch (const Json::exception& error) {
    return Status(Code::invalid_argument, fmt::format("it is damaged ({})", error.what()));
  }
  return profile;
}

Profile read_profile(const std::string& folder, const MachineKey& key) {
  if (folder.empty()) return {};
  const std::string path = profile_path(folder, key);
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return {};
  auto profile = parse_profile(read_whole(path), key);
  if (profile) return *profile;
  log::write_once(log::Level::warning, fmt::format("the profile {} is not used: {}; the machine is measured anew", path,
                                                   profile.status().text()));
  return {};
}

Status write_profile(const std::string& folder, const MachineKey& key, const Profile& profile) {
  if (folder.empty()) return Status(Code::network, "neither XDG_CACHE_HOME nor HOME is set");
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return Status(Code::network, fmt::format("cannot make {}: {}", folder, error.message()));
  const std::string path = profile_path(folder, key), text = profile_text(key, profile);
  std::string temporary = path + ".XXXXXX";
  const int fd = ::mkostemp(temporary.data(), O_CLOEXEC);
  if (fd < 0) return cannot("make", temporary);
  const bool whole = ::write(fd, text.data(), text.size()) == ssize_t(text.size());
  const bool closed = ::close(fd) == 0;
  Status status;
  if (!whole || !closed) status = cannot("write", temporary);
  else if (::rename(temporary.c_str(), path.c_str()) != 0) status = cannot("rename to", path);
  if (!status) ::unlink(temporary.c_str());
  return status;
}

}  // namespace tutti::comm
