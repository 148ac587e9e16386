#pragma once
// Profile: what this machine's wires and reductions cost, as measured once and kept in a file, so that plans rest on
// figures of the machine and start-up need not measure again. Values and their file; who measures is probe.h. A file is
// never trusted: what is damaged, of another machine or absurd counts as absent.
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "comm/trials.h"
#include "comm/wire_bytes.h"
#include "core/config.h"

namespace tutti::comm {

// What messages go over: memory that the ranks of a host share, sockets within a host, the network between hosts.
enum class Medium { memory, sockets, network };
inline constexpr int kMediumCount = 3;
inline constexpr const char* kMediumNames[kMediumCount] = {"memory", "sockets", "network"};

// As BorderPrice: seconds on its way, seconds of a processor for each message, seconds a byte. With more ranks than
// cores: of what one rank would take with a core for itself, i.e. the time seen divided by ranks a core.
struct LinkFigures {
  double alpha = 0, message = 0, beta = 0;
  std::optional<std::uint64_t> lend_from;   // memory: as Prices::lend_from
  bool operator==(const LinkFigures&) const = default;
};
// Seconds for each byte of operands of an f32 sum of two.
struct ReductionFigures {
  double cached = 0, memory = 0;
  bool operator==(const ReductionFigures&) const = default;
};

struct Figures {
  std::array<std::array<std::optional<LinkFigures>, 2>, kMediumCount> links;   // by Medium, and crowded or not
  std::optional<ReductionFigures> reduction;
  std::uint64_t trials_mark = 0;     // Profile::mark for the ranks of this world
  bool operator==(const Figures&) const = default;

  std::optional<LinkFigures>& link(Medium medium, bool crowded) { return links[std::size_t(medium)][crowded]; }
  const std::optional<LinkFigures>& link(Medium medium, bool crowded) const {
    return links[std::size_t(medium)][crowded];
  }
};

// Bounds of what any machine can be like; outside, a figure is a mistake of the clock, of a file or of a sender.
inline constexpr double kLeastSeconds = 1e-9,
                        kMostSeconds = 0.1;  // of a message: from beyond any memory to around the world
inline constexpr double kLeastPerByte = 1e-13, kMostPerByte = 1e-4;       // 10 TB/s to 10 KB/s
bool plausible(const LinkFigures& figures);
bool plausible(const ReductionFigures& figures);
// Brought into the bounds: differences of noisy times may leave them.
LinkFigures bounded(LinkFigures figures);
ReductionFigures bounded(ReductionFigures figures);

// Elementwise the slower of both; what only one has is taken. Commutes and
// associates, so the order of ranks does not matter.
std::optional<LinkFigures> slower(const std::optional<LinkFigures>& a, const std::optional<LinkFigures>& b);
Figures slower(const Figures& a, const Figures& b);
// `over` where it has something, else `under`.
Figures overlaid(Figures under, const Figures& over);

inline constexpr std::size_t kMaxFiguresBytes = 1 + (kMediumCount * 2 * 4 + 2 + 1) * 8;
void encode(const Figures& figures, ByteWriter& to);
// Implausible ones are left out.
Figures decode_figures(ByteReader& from);

// All that a file holds.
struct Profile {
  Figures figures;                   // without a mark
  struct OfRanks {
    Medium medium = Medium::memory;
    Trials trials;
    bool operator==(const OfRanks&) const = default;
  };
  std::vector<OfRanks> trials;       // one for each medium, number of ranks and shape
  bool operator==(const Profile&) const = default;

  const Trials* find(Medium medium, int ranks, const std::string& shape) const;     // nullptr: none
  std::uint64_t mark(int ranks) const;                    // equal where all trials of so many ranks are; 0: none
  void keep(Medium medium, Trials of_ranks);  // in place of those of the same; at most kMostKept, the oldest go
};
inline constexpr std::size_t kMostKept = 12;

// What a profile holds for: another processor, kernel or version, or settings
// that change the wires, need one of their own.
struct MachineKey {
  std::string processor, kernel, version, settings;
  int cores = 1;
  bool operator==(const MachineKey&) const = default;
};
MachineKey key_of_this_machine(const Settings& settings);

// $XDG_CACHE_HOME/tutti, else $HOME/.cache/tutti, else "": profiles are not kept.
std::string profile_folder();
std::string profile_path(const std::string& folder, const MachineKey& key);
std::string profile_text(const MachineKey& key, const Profile& profile);
// invalid_argument: damaged, of another machine, absurd; says which.
Result<Profile> parse_profile(const std::string& text, const MachineKey& key);
// Empty when there is none, or none that can be believed (with a warning, once).
Profile read_profile(const std::string& folder, const MachineKey& key);
// By renaming: readers see the old file or the new one. network: cannot be written; nobody needs to fail because of it.
Status write_profile(const std::string& folder, const MachineKey& key, const Profile& profile);

}  // namespace tutti::comm
