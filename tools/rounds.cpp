// See rounds.h.
#include "tools/rounds.h"
#include <cerrno>
#include <climits>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sstream>
#include <unistd.h>
#include "tools/port.h"

namespace tutti::tools {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kLook{50};
constexpr milliseconds kLost{20'000};      // of a launcher that is not heard of: longer than a cut takes to be noticed

std::string rest_of(std::istringstream& words) {
  std::string text;
  std::getline(words >> std::ws, text);
  return text;
}

}  // namespace

Result<std::unique_ptr<Rounds>> Rounds::open(int roster, const RoundsPlan& plan) {
  std::unique_ptr<Rounds> rounds(new Rounds(roster, plan));
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
    return Status(Code::out_of_resources, fmt::format("pipe: {}", std::strerror(errno)));
  rounds->stop_ = Descriptor(ends[0]);
  rounds->stop_end_ = Descriptor(ends[1]);
  rounds->watcher_ = std::thread([rounds = rounds.get()] { rounds->watch(); });
  return rounds;
}

Rounds::~Rounds() {
  ending_ = true;
  if (watcher_.joinable()) watcher_.join();
}

Rounds::Said Rounds::read(comm::Roster& roster) {
  Said said;
  (void)roster.read();
  for (const std::string& line : roster.other_lines()) {
    std::istringstream words(line);
    std::string kind;
    int round = 0, number = 0;
    words >> kind;
    if (kind == "over" && !said.over) said.over = rest_of(words);
    if ((kind != "again" && kind != "round" && kind != "done") || !(words >> round)) continue;
    if (kind == "round" && words >> number) said.ports.emplace(round, number);
    if (kind == "done" && words >> number) said.done[round].insert(number);
    if (kind == "again" && round > said.round) said.round = round, said.why = rest_of(words);
  }
  return said;
}

void Rounds::watch() {
  for (; !ending_; std::this_thread::sleep_for(kLook)) {
    const Said said = read(heard_);
    const std::lock_guard lock(mutex_);
    if (told_ || (!said.over && said.round <= round_)) continue;
    const std::string text = "on another host " + said.over.value_or(said.why);
    (void)!write(stop_end_.get(), text.data(), std::min<std::size_t>(text.size(), PIPE_BUF));
    told_ = true;
  }
}

// What has come for the rounds before is of no interest any more.
void Rounds::enter(int round) {
  const std::lock_guard lock(mutex_);
  char bytes[PIPE_BUF];
  while (::read(stop_.get(), bytes, sizeof bytes) > 0) continue;
  round_ = round;
  told_ = false;
}

bool Rounds::silent() {
  (void)roster_.read();
  for (int slot = 0; slot < roster_.ranks(); ++slot)
    if (roster_.has_waited(slot)) return true;
  return false;
}

Status Rounds::join(Job& job) {
  const Said said = read(roster_);
  job.restart_count = said.round;
  enter(said.round);
  return said.round == 0 ? Status() : meet(job);
}

Status Rounds::meet(Job& job) {
  for (const auto end = Clock::now() + plan_.limit;; std::this_thread::sleep_for(kLook)) {
    const Said said = read(roster_);
    if (const auto port = said.ports.find(job.restart_count); port != said.ports.end()) {
      job.master_port = port->second;
      return {};
    }
    if (job.host_rank == 0) {
      const auto port = free_port(true);
      if (!port) return port.status();
      (void)roster_.add(fmt::format("round {} {}", job.restart_count, *port));
      continue;
    }
    if (plan_.stop())
      return Status(Code::aborted, "stopped while waiting for host number 0 to say where all meet again");
    if (Clock::now() >= end)
      return Status(Code::timeout,
                    fmt::format("host number 0 has not said within {} s where all ranks come together for restart {}",
                                plan_.limit.count() / 1000, job.restart_count));
  }
}

void Rounds::fail(const std::string& what, bool again) {
  const Said said = read(roster_);
  const std::lock_guard lock(mutex_);
  if (said.over || said.round > round_) return;      // another host was first
  told_ = true;
  (void)roster_.add(again && round_ < plan_.most ? fmt::format("again {} {}", round_ + 1, what) : "over " + what);
}

// False: a further round, or the end, has come before. A launcher that is lost is the end too.
bool Rounds::all_done(const Job& job) {
  std::map<int, Clock::time_point> heard;
  for (;; std::this_thread::sleep_for(kLook)) {
    Said said = read(roster_);
    const std::set<int>& done = said.done[job.restart_count];
    if (int(done.size()) == job.host_count) return true;
    if (said.over || said.round > job.restart_count || plan_.stop()) return false;
    const auto now = Clock::now();
    for (int host = 0; host < job.host_count; ++host) {
      if (done.contains(host) || plan_.lives(host)) heard[host] = now;
      if (now - heard.try_emplace(host, now).first->second < kLost) continue;
      (void)roster_.add(fmt::format("over host number {} is lost, and its ranks were not done", host));
    }
  }
}

std::optional<std::string> Rounds::over() { return read(roster_).over; }

bool Rounds::next(const Outcome& outcome, Job& job) {
  const bool well = !outcome.first_failure && outcome.stop_reason.empty() && outcome.passed_signal == 0;
  if (well) {
    (void)roster_.add(fmt::format("done {} {}", job.restart_count, job.host_rank));
    if (all_done(job)) return false;
  }
  const Said said = read(roster_);
  if (said.over || said.round <= job.restart_count || outcome.passed_signal != 0 || plan_.stop()) return false;
  plan_.tell(
      fmt::format("{}; all ranks of all hosts are started again (restart {} of {})", said.why, said.round, plan_.most));
  job.restart_count = said.round;
  enter(said.round);
  const Status met = meet(job);
  if (!met) plan_.tell(met.text());
  return met.ok();
}

}  // namespace tutti::tools
