#pragma once
// What an errno means, in the library's words: the system's text and, where there is one, the usual cause.
#include <string>

namespace tutti {

// "connection refused (nothing listens there)". Thread-safe.
std::string errno_text(int error);

}  // namespace tutti
