#pragma once
// Assertions that are always on. A failed one is a bug of tutti: it says where, and ends the process.

namespace tutti::detail {
[[noreturn]] void check_failed(const char* expression, const char* file, int line);
}
#define TUTTI_CHECK(condition) \
  (__builtin_expect(!!(condition), 1) ? void(0) : ::tutti::detail::check_failed(#condition, __FILE__, __LINE__))
