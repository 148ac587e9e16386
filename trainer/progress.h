#pragma once
// A bar at the foot of a terminal that says how far a run is and how long it still takes; nothing where output goes elsewhere.
#include <chrono>
#include <string>

namespace tutti::trainer {

// "[=====>    ] 52 %  3:10 left"; `seconds` were needed for the last `done - begin` steps.
std::string progress_bar(long begin, long done, long steps, double seconds);

class Progress {
 public:
  // `begin`: steps that were done before.
  Progress(bool wanted, long begin, long steps);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() { clear(); }
  // Prints a text of whole lines above the bar.
  void say(const std::string& text);
  void show(long done);

 private:
  void clear();
  const bool wanted_;
  const long begin_, steps_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::string shown_;
};

}  // namespace tutti::trainer
