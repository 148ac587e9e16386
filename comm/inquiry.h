#pragma once
// Inquiry: the signal by which a person asks the ranks of a process where they stand (TUTTI_REPORT_SIGNAL). It is taken
// only where the program has left it at its default, which would end the process, and given back with the last Inquiry.
// The handler writes to descriptors and does nothing else; whose loop watches one hears of it there.
#include <functional>
#include <memory>

#include "core/net.h"

namespace tutti::comm {

class Inquiry {
 public:
  // `asked` comes from Loop::run. Deaf where the loop has no descriptors, or `setting` is 0.
  Inquiry(Loop& loop, const std::string& setting, std::function<void()> asked);
  ~Inquiry();
  Inquiry(const Inquiry&) = delete;
  Inquiry& operator=(const Inquiry&) = delete;

  // USR1, USR2, SIGUSR1, SIGUSR2, or 0 for none; the number. invalid_argument.
  static Result<int> signal_from(const std::string& setting);

 private:
  std::size_t slot_ = 0;
  int descriptor_ = -1;
  std::shared_ptr<void> watch_;
};

}  // namespace tutti::comm
