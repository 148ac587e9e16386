#include "core/memory_map.h"

#include <fmt/format.h>

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <memory>

namespace tutti {

std::string memory_complaint(const void* begin, std::size_t bytes, bool write) {
  if (bytes == 0) return "";
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> maps(std::fopen("/proc/self/maps", "re"), std::fclose);
  if (!maps) return "";
  const auto first = reinterpret_cast<std::uintptr_t>(begin);
  std::uint64_t at = first;
  const std::uint64_t end = first + bytes;
  char line[1024];
  bool whole_line = true;
  while (at < end && std::fgets(line, sizeof line, maps.get())) {
    std::uint64_t from = 0, to = 0;
    char access[5] = "";
    const bool begins = whole_line && std::sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s", &from, &to, access) == 3;
    whole_line = std::char_traits<char>::find(line, std::char_traits<char>::length(line), '\n') != nullptr;
    if (!begins || to <= at) continue;
    if (from > at) break;
    if (access[0] != 'r') return fmt::format("byte {} of {} may not be read", at - first, bytes);
    if (write && access[1] != 'w') return fmt::format("byte {} of {} may not be written", at - first, bytes);
    at = to;
  }
  return at >= end ? "" : fmt::format("byte {} of {} is not mapped", at - first, bytes);
}

}  // namespace tutti
