#pragma once
// ChildProcess: work done in a copy of this process, because it changes the environment, may crash on what it is given,
// or is another program. For tools and files, never for the way of a collective: it forks.
#include <tutti/status.h>
#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace tutti::topology {

// `work` runs in the child, writes to the descriptor and returns an exit status (it may exec). Blocks until the child
// has ended. internal: it could not be started; timeout: it ran longer, and was killed; invalid_argument: it ended by a
// signal, with a status other than 0, or wrote more than `most` bytes. `what` is what messages call it.
Result<std::string> run_in_child(const std::string& what, const std::function<int(int)>& work,
                                 std::chrono::milliseconds limit, std::size_t most);

// Another program by its name in PATH, its output and errors together, in English.
Result<std::string> run_program(const std::vector<std::string>& arguments, std::chrono::milliseconds limit,
                                std::size_t most);

}  // namespace tutti::topology
