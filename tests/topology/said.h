#pragma once
// A status in words, without the code that the table of errors gives it.
#include <string>

#include <tutti/status.h>

namespace tutti::topology {

inline std::string said(const Status& status) {
  const std::string text = status.to_string();
  return text.substr(0, text.rfind(" [TUTTI-E"));
}

}  // namespace tutti::topology
