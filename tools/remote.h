#pragma once
// `tutti run --hosts a,b`: one `tutti run` a host, started by ssh and steered through its standard input. What ssh
// cannot reach is not our business; where there is no ssh, the command lines for each host are printed instead.
#include <string>
#include <vector>
#include "tools/child.h"
#include "tools/job.h"

namespace tutti::tools {

struct HostCommand {
  std::string host;
  std::string line;        // for a shell on that host, without `cd` and secrets: what a person would type there
};

struct RemoteRun {
  std::vector<std::string> hosts;
  Job job;                               // host_rank is ignored
  std::string executable;                // path of `tutti`, the same on all hosts
  std::string folder;                    // working directory, likewise
  std::vector<std::string> flags;        // further ones of `tutti run`
  std::vector<std::string> program;      // with its arguments
  std::vector<std::string> environment;  // ours; its TUTTI_* settings travel along, but not the key
};

std::vector<HostCommand> host_commands(const RemoteRun& run);

// Starts them: ssh, or directly where the host's name is this host's or localhost. Each first reads the line
// key_order() of its control stream, so the key is on no command line.
std::vector<Command> remote_commands(const RemoteRun& run);
std::string key_order(const std::string& job_key);

// For a POSIX shell; plain words stay as they are.
std::string quoted(const std::string& word);

}  // namespace tutti::tools
