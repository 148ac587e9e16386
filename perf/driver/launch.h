#pragma once
// Starts this program again as the ranks of one world on this host, tells their failures and ends them all. It does not
// communicate; the ranks meet by themselves.
#include <span>
#include <string>

#include "perf/driver/options.h"
#include "perf/driver/origin.h"

namespace tutti::perf {

// A meeting address and a key that nobody else has.
std::string make_address();
std::string make_key();

// Runs options.processes members until all have ended; the exit status. The first failure ends the others after a short
// grace; SIGINT, SIGTERM and SIGHUP end all, then this process. If this process is killed, the kernel ends the members.
int run_members(const Options& options, std::span<char* const> args, const Environment& environment);

// In a member: tells its starter why `rank` fails. Lost when nobody reads.
void tell_failure(int fd, int rank, const std::string& text);

// The members' messages ("RANK TEXT\n" each) as lines to show, equal texts together: "ranks 0, 2: text".
std::string merged_failures(const std::string& messages);

}  // namespace tutti::perf
