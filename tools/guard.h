#pragma once
// Splits the launcher into two processes, so that neither can be killed without the other cleaning up behind it. It
// knows nothing of ranks.
#include <functional>

namespace tutti::tools {

// Runs `body` in a forked process and returns its exit status (128 + signal when it was killed). Passes kPassedSignals
// on to it. When it has ended, all processes below this one are killed. `body` gets a descriptor that reaches its end
// when this process dies. Call early, from a process with one thread.
int run_guarded(const std::function<int(int lifeline)>& body);

}  // namespace tutti::tools
