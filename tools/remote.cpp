// See remote.h.
#include "tools/remote.h"
#include <algorithm>
#include <fmt/format.h>

namespace tutti::tools {
namespace {

std::vector<std::string> run_arguments(const RemoteRun& run, std::size_t host_rank, bool controlled) {
  const Job& job = run.job;
  std::vector<std::string> words = {run.executable, "run", "-n", std::to_string(job.local_ranks)};
  const auto add = [&words](const char* flag, const std::string& value) { words.insert(words.end(), {flag, value}); };
  if (run.hosts.size() > 1) {
    add("--nnodes", std::to_string(run.hosts.size()));
    add("--node-rank", std::to_string(host_rank));
  }
  add("--master-addr", job.master_address);
  add("--master-port", std::to_string(job.master_port));
  words.insert(words.end(), run.flags.begin(), run.flags.end());
  if (controlled) words.emplace_back("--control");
  words.emplace_back("--");
  words.insert(words.end(), run.program.begin(), run.program.end());
  return words;
}

std::string line_of(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) line.append(line.empty() ? "" : " ").append(quoted(word));
  return line;
}

// What the remote shell would not have: our TUTTI_* settings.
std::vector<std::string> travelling(const RemoteRun& run) {
  std::vector<std::string> settings;
  for (const std::string& entry : run.environment) {
    if (entry.starts_with("TUTTI_") && !entry.starts_with("TUTTI_JOB_KEY=")) settings.push_back(entry);
  }
  return settings;
}

}  // namespace

std::string quoted(const std::string& word) {
  const std::string plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
  if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) return word;
  std::string text = "'";
  for (const char c : word) {
    if (c == '\'') text += "'\\''";
    else text += c;
  }
  text += '\'';
  return text;
}

std::vector<HostCommand> host_commands(const RemoteRun& run) {
  std::vector<HostCommand> commands;
  for (std::size_t i = 0; i < run.hosts.size(); ++i)
    commands.push_back({run.hosts[i], line_of(run_arguments(run, i, false))});
  return commands;
}

std::vector<Command> remote_commands(const RemoteRun& run) {
  std::vector<Command> commands;
  for (std::size_t i = 0; i < run.hosts.size(); ++i) {
    Command command;
    command.label = fmt::format("host {}", run.hosts[i]);
    command.environment = run.environment;
    command.input = Input::control;
    command.arguments = run_arguments(run, i, true);
    if (run.hosts[i] != "localhost" && run.hosts[i] != host_name()) {
      std::vector<std::string> words = travelling(run);
      if (!words.empty()) words.insert(words.begin(), "env");
      words.insert(words.end(), command.arguments.begin(), command.arguments.end());
      // BatchMode: a question for a password would wait for ever.
      command.arguments = {"ssh", "-o", "BatchMode=yes", run.hosts[i],
                           fmt::format("cd {} && exec {}", quoted(run.folder), line_of(words))};
    }
    commands.push_back(std::move(command));
  }
  return commands;
}

std::string key_order(const std::string& job_key) { return fmt::format("key {}\n", job_key); }

}  // namespace tutti::tools
