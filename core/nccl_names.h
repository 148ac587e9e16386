#pragma once
// The NCCL_* variables that people have in their scripts, as settings of tutti. Knows names and values only; a TUTTI_*
// variable that is set wins, and a value that cannot be understood has no effect but a line that says so.
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tutti {

struct NcclName {
  std::string_view name;      // "NCCL_TREE_THRESHOLD"
  std::string_view becomes;   // "TUTTI_TREE_THRESHOLD"; empty: understood, without effect
  std::string_view meaning;   // for the documentation
};

// What is set in NCCL's names for this variable of tutti. nullopt: nothing, or nothing that can be understood. `tell`
// gets one line for each that is found.
std::optional<std::string> from_nccl(std::string_view variable, const std::function<const char*(const char*)>& read,
                                     const std::function<void(const std::string&)>& tell);
// The same for those without effect.
void tell_nccl_without_effect(const std::function<const char*(const char*)>& read,
                              const std::function<void(const std::string&)>& tell);

// All that are understood.
std::span<const NcclName> nccl_names();

}  // namespace tutti
