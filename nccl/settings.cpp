#include "nccl/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstring>

#include "core/config.h"
#include "core/log.h"

namespace tutti::nccl {
namespace {

constexpr unsigned kMagic = 0xcafebeef;
constexpr std::size_t kLargest = 4096;             // of a later version's structure; larger ones were not initialized
constexpr std::size_t kPadded = 24, kPadding = 4;  // 2.14's ends in bytes that nobody sets
constexpr unsigned kFirstVersion = NCCL_VERSION(2, 14, 0);

struct Number {
  const char* name;
  int ncclConfig_t::*field;
  int lowest, highest;
};
constexpr Number kNumbers[] = {
    {"blocking", &ncclConfig_t::blocking, 0, 1},
    {"cgaClusterSize", &ncclConfig_t::cgaClusterSize, 0, 8},
    {"minCTAs", &ncclConfig_t::minCTAs, 1, INT_MAX},
    {"maxCTAs", &ncclConfig_t::maxCTAs, 1, INT_MAX},
    {"splitShare", &ncclConfig_t::splitShare, 0, 1},
    {"collnetEnable", &ncclConfig_t::collnetEnable, 0, 1},
    {"CTAPolicy", &ncclConfig_t::CTAPolicy, NCCL_CTA_POLICY_DEFAULT, NCCL_CTA_POLICY_EFFICIENCY | NCCL_CTA_POLICY_ZERO},
    {"shrinkShare", &ncclConfig_t::shrinkShare, 0, 1},
    {"nvlsCTAs", &ncclConfig_t::nvlsCTAs, 1, INT_MAX},
    {"nChannelsPerNetPeer", &ncclConfig_t::nChannelsPerNetPeer, 1, INT_MAX},
    {"nvlinkCentricSched", &ncclConfig_t::nvlinkCentricSched, 0, 1},
};

Outcome check_numbers(const ncclConfig_t& config) {
  for (const Number& number : kNumbers) {
    const int value = config.*number.field;
    if (value != NCCL_CONFIG_UNDEF_INT && (value < number.lowest || value > number.highest))
      return {
          ncclInvalidArgument,
          number.highest == INT_MAX
              ? fmt::format("config: {} is {}, wanted at least {}", number.name, value, number.lowest)
              : fmt::format("config: {} is {}, wanted {} to {}", number.name, value, number.lowest, number.highest)};
  }
  if (config.minCTAs != NCCL_CONFIG_UNDEF_INT && config.maxCTAs != NCCL_CONFIG_UNDEF_INT &&
      config.minCTAs > config.maxCTAs)
    return {ncclInvalidArgument,
            fmt::format("config: minCTAs is {}, more than maxCTAs, which is {}", config.minCTAs, config.maxCTAs)};
  return {};
}

Outcome check_head(const ncclConfig_t& given) {
  if (given.magic != kMagic)
    return {ncclInvalidArgument, fmt::format("config: magic is {:#x}, wanted {:#x}: begin with NCCL_CONFIG_INITIALIZER",
                                             given.magic, kMagic)};
  if (given.size <= offsetof(ncclConfig_t, blocking) || given.size > kLargest)
    return {ncclInvalidArgument,
            fmt::format(
                "config: size is {}, wanted sizeof(ncclConfig_t), which is {} here: begin with NCCL_CONFIG_INITIALIZER",
                given.size, sizeof(ncclConfig_t))};
  if (given.version < kFirstVersion)
    return {ncclInvalidArgument, fmt::format("config: version is {}, wanted {} or later, of which the structure is",
                                             given.version, kFirstVersion)};
  return {};
}

}  // namespace

Outcome read_config(const ncclConfig_t* given, CommSettings& settings) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  if (given) {
    if (Outcome head = check_head(*given); !head.ok()) return head;
    const std::size_t padding = given->size == kPadded ? kPadding : 0;
    std::memcpy(&config, given, std::min(given->size - padding, sizeof config));  // an earlier version's is shorter
    if (Outcome numbers = check_numbers(config); !numbers.ok()) return numbers;
  }
  if (config.blocking != NCCL_CONFIG_UNDEF_INT) settings.blocking = config.blocking == 1;
  if (const std::string blocking = environment("NCCL_COMM_BLOCKING"); blocking == "0" || blocking == "1")
    settings.blocking = blocking == "1";
  if (config.commName) settings.name = config.commName;
  if (config.netName)
    log::write_once(
        log::Level::warning,
        fmt::format("ncclConfig_t: netName \"{}\" has no effect: TUTTI_TRANSPORT and TUTTI_INTERFACE choose wires",
                    config.netName));
  return {};
}

}  // namespace tutti::nccl
