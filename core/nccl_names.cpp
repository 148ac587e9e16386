#include "core/nccl_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "core/config.h"

namespace tutti {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return char(std::tolower(c)); });
  return out;
}

std::optional<std::string> bytes(std::string_view value) {
  if (!parse_bytes(value)) return std::nullopt;
  return std::string(value);
}

// A buffer of NCCL's is used in eight steps.
std::optional<std::string> buffer(std::string_view value) {
  const auto whole = parse_bytes(value);
  if (!whole || *whole < 8) return std::nullopt;
  return to_text(ByteCount(*whole / 8));
}

// eth,ib are prefixes, =eth0 exact, ^ in front excludes all that follow.
std::optional<std::string> interfaces(std::string_view value) {
  std::string out;
  if (!value.empty() && value[0] == '^') out = "^", value.remove_prefix(1);
  const bool exact = !value.empty() && value[0] == '=';
  if (exact) value.remove_prefix(1);
  if (value.empty()) return std::nullopt;
  for (bool first = true; !value.empty(); first = false) {
    const std::size_t comma = std::min(value.find(','), value.size());
    if (comma == 0) return std::nullopt;
    out += fmt::format("{}{}{}", first ? "" : ",", value.substr(0, comma), exact ? "" : "*");
    value.remove_prefix(std::min(comma + 1, value.size()));
  }
  return out;
}

std::optional<std::string> algorithms(std::string_view value) {
  const bool excludes = !value.empty() && value[0] == '^';
  if (excludes) value.remove_prefix(1);
  std::string out;
  while (!value.empty()) {
    const std::size_t comma = std::min(value.find(','), value.size());
    const std::string name = lower(value.substr(0, comma));
    value.remove_prefix(std::min(comma + 1, value.size()));
    if (name != "ring" && name != "tree" && name != "pat") continue;      // CollNet and NVLS are of NVIDIA's switches
    out += fmt::format("{}{}{}", out.empty() ? "" : ",", excludes ? "^" : "", name);
  }
  return out.empty() ? std::nullopt : std::optional(out);
}

std::optional<std::string> debug(std::string_view value) {
  const std::string level = lower(value);
  if (level == "version" || level == "warn") return "warning";
  if (level == "info") return "info";
  if (level == "trace") return "debug";
  return std::nullopt;
}

std::optional<std::string> no_memory(std::string_view value) {
  if (value == "1") return "tcp";
  return std::nullopt;
}

std::optional<std::string> sockets(std::string_view value) {
  int count = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), count);
  if (error != std::errc() || end != value.data() + value.size() || count < 1 || count > 64) return std::nullopt;
  return std::string(value);
}

std::optional<std::string> number(std::string_view value) {
  int any = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), any);
  if (error != std::errc() || end != value.data() + value.size() || any < 0) return std::nullopt;
  return std::string(value);
}

// As interfaces; a port may stand behind a name.
std::optional<std::string> devices(std::string_view value) {
  auto out = interfaces(value);
  for (std::size_t colon = 0; out && (colon = out->find(':', colon)) != out->npos; ++colon) {
    const std::size_t star = std::min(out->find_first_of("*,", colon), out->size());
    if (star == out->size() || (*out)[star] != '*') continue;
    out->erase(star, 1);
    out->insert(colon++, "*");
  }
  return out;
}

std::optional<std::string> no_rdma(std::string_view value) {
  if (value == "1") return "^*";
  return std::nullopt;
}

std::optional<std::string> switched(std::string_view value) {
  if (value == "0" || value == "1") return std::string(value);
  return std::nullopt;
}

// By name, or by the number of old.
std::optional<std::string> distance(std::string_view value) {
  constexpr std::string_view kNames[] = {"LOC", "PIX", "PXB", "PHB", "SYS"};
  for (std::size_t i = 0; i < std::size(kNames); ++i)
    if (value == kNames[i] || value == std::to_string(i)) return std::string(kNames[i]);
  return std::nullopt;
}

std::optional<std::string> no_peers(std::string_view value) {
  if (value == "1") return "0";
  return std::nullopt;
}

std::optional<std::string> peer_level(std::string_view value) {
  const std::string level = lower(value);
  if (level == "loc" || level == "0") return "0";
  if (level == "sys" || level == "5") return "auto";
  return std::nullopt;
}

std::optional<std::string> as_it_is(std::string_view value) { return std::string(value); }

struct Entry {
  NcclName name;
  std::optional<std::string> (*translate)(std::string_view value) = nullptr;
  std::string_view off = "";       // the value that says no more than the default
};

const Entry kEntries[] = {
    {{"NCCL_TREE_THRESHOLD", "TUTTI_TREE_THRESHOLD", "largest message for trees (NCCL itself dropped it in 2.5)"},
     bytes},
    {{"NCCL_ALGO", "TUTTI_ALGO", "Ring, Tree, PAT; ^ excludes"}, algorithms},
    {{"NCCL_BUFFSIZE", "TUTTI_SEGMENT", "an eighth of it"}, buffer},
    {{"NCCL_SHM_DISABLE", "TUTTI_TRANSPORT", "1: tcp"}, no_memory, "0"},
    {{"NCCL_SOCKET_IFNAME", "TUTTI_INTERFACE", "prefixes; = exact, ^ excludes"}, interfaces},
    {{"NCCL_NSOCKS_PERTHREAD", "TUTTI_SOCKETS", "sockets for each pair"}, sockets},
    {{"NCCL_DEBUG", "TUTTI_LOG", "VERSION and WARN: warning, INFO: info, TRACE: debug"}, debug},
    {{"NCCL_TOPO_FILE", "TUTTI_TOPOLOGY_FILE", "a machine's description"}, as_it_is},
    {{"NCCL_TOPO_DUMP_FILE", "TUTTI_TOPOLOGY_DUMP", "where to write it"}, as_it_is},
    {{"NCCL_P2P_DISABLE", "TUTTI_P2P", "1: 0"}, no_peers, "0"},
    {{"NCCL_P2P_LEVEL", "TUTTI_P2P", "LOC or 0: 0; SYS or 5: auto; others are not known: the test at start decides"},
     peer_level},
    {{"NCCL_IB_DISABLE", "TUTTI_IB_HCA", "1: ^*, no device"}, no_rdma, "0"},
    {{"NCCL_IB_HCA", "TUTTI_IB_HCA", "prefixes; = exact, ^ excludes, :port behind a name"}, devices},
    {{"NCCL_IB_GID_INDEX", "TUTTI_IB_GID_INDEX", "entry of the GID table"}, number, "-1"},
    {{"NCCL_IB_TIMEOUT", "TUTTI_IB_TIMEOUT", "as it is"}, number},
    {{"NCCL_IB_RETRY_CNT", "TUTTI_IB_RETRY", "as it is"}, number},
    {{"NCCL_IB_SL", "TUTTI_IB_SL", "as it is"}, number},
    {{"NCCL_IB_TC", "TUTTI_IB_TRAFFIC_CLASS", "as it is"}, number},
    {{"NCCL_IB_QPS_PER_CONNECTION", "TUTTI_IB_QPS", "as it is"}, number},
    {{"NCCL_IB_PCI_RELAXED_ORDERING", "TUTTI_IB_RELAXED_ORDERING", "0 or 1; 2 is the default here, too"},
     switched,
     "2"},
    {{"NCCL_NET_GDR_LEVEL", "TUTTI_IB_GPU_DISTANCE", "LOC, PIX, PXB, PHB, SYS, or 0 to 4"}, distance},
};

}  // namespace

std::span<const NcclName> nccl_names() {
  static const std::vector<NcclName> names = [] {
    std::vector<NcclName> out;
    for (const Entry& entry : kEntries) out.push_back(entry.name);
    return out;
  }();
  return names;
}

std::optional<std::string> from_nccl(std::string_view variable, const std::function<const char*(const char*)>& read,
                                     const std::function<void(const std::string&)>& tell) {
  for (const Entry& entry : kEntries) {
    if (entry.name.becomes != variable) continue;
    const std::string name(entry.name.name);
    const char* value = read(name.c_str());
    if (!value || !*value || value == entry.off) continue;
    const auto ours = entry.translate(value);
    if (ours) tell(fmt::format("{}={} is taken as {}={}", name, value, variable, *ours));
    else
      tell(fmt::format("{}={} is not understood and has no effect: {} ({}) is what it would become", name, value,
                       variable, entry.name.meaning));
    return ours;
  }
  return std::nullopt;
}

void tell_nccl_without_effect(const std::function<const char*(const char*)>& read,
                              const std::function<void(const std::string&)>& tell) {
  for (const Entry& entry : kEntries) {
    if (!entry.name.becomes.empty()) continue;
    const std::string name(entry.name.name);
    if (const char* value = read(name.c_str()); value && *value)
      tell(fmt::format("{}={} has no effect: {}", name, value, entry.name.meaning));
  }
}

}  // namespace tutti
