// See assembly.h.
//
// In a file, locks tell who lives: each launcher holds a shared lock on one byte far behind the text, and an exclusive
// one on a byte of its number. A file on which nobody holds the first is of a job that is over, and is begun anew.
#include "tools/assembly.h"
#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sstream>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include "core/config.h"
#include "core/interfaces.h"
#include "core/socket_address.h"
#include "tools/port.h"

namespace tutti::tools {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr off_t kLocks = off_t(1) << 40;
constexpr milliseconds kLook{30}, kTouch{300};
constexpr milliseconds kFirstWord{2'000}, kWord{10'000};      // until the user hears who is missing, and then again

template <class... Args>
Status wrong(fmt::format_string<Args...> text, Args&&... args) {
  return Status(Code::invalid_argument, fmt::format(text, std::forward<Args>(args)...));
}

// F_RDLCK or F_WRLCK, held by the open file until it is closed or its process
// ends; false: somebody else's is in the way.
bool lock_byte(int file, int kind, off_t at) {
  struct flock lock{};
  lock.l_type = short(kind);
  lock.l_whence = SEEK_SET;
  lock.l_start = at;
  lock.l_len = 1;
  return fcntl(file, F_OFD_SETLK, &lock) == 0;
}

bool same_file(int file, const std::string& path) {
  struct stat by_descriptor{}, by_path{};
  return fstat(file, &by_descriptor) == 0 && stat(path.c_str(), &by_path) == 0 &&
         by_descriptor.st_ino == by_path.st_ino && by_descriptor.st_dev == by_path.st_dev;
}

std::string best_address(const std::string& wanted) {
  if (!wanted.empty()) return wanted;
  const auto all = choose_addresses(interface_addresses(), environment("TUTTI_INTERFACE"), true);
  return all && !all->empty() ? all->front() : "127.0.0.1";
}

std::string name_of(int number, const std::vector<std::string>& names) {
  return std::size_t(number) < names.size() ? names[std::size_t(number)] : "number " + std::to_string(number);
}

}  // namespace

Assembly::~Assembly() {
  ending_ = true;
  if (watcher_.joinable()) watcher_.join();
  gossip_.reset();
  if (file_.empty() || roster_.get() < 0) return;
  flock(roster_.get(), LOCK_EX);
  if (lock_byte(roster_.get(), F_WRLCK, kLocks) && same_file(roster_.get(), file_))
    unlink(file_.c_str());  // the last one
}

Result<std::unique_ptr<Assembly>> Assembly::meet(Job& job, const AssemblyPlan& plan) {
  std::unique_ptr<Assembly> assembly(new Assembly);
  Status status = plan.file.empty() ? assembly->open_memory(job, plan) : assembly->open_file(job, plan);
  if (status && job.host_count > 1) {
    if (plan.file.empty()) status = assembly->open_gossip(job, plan);
    if (status) status = assembly->announce(job, plan);
    if (status) status = assembly->wait_for_all(job, plan);
    if (int ends[2]; status && !plan.elastic && pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0) {
      assembly->ended_ = Descriptor(ends[0]);
      assembly->ending_end_ = Descriptor(ends[1]);
    }
    assembly->number_ = job.host_rank;
    if (status) assembly->watcher_ = std::thread([assembly = assembly.get(), job] { assembly->stay_in_touch(job); });
  }
  if (!status) return status;
  return assembly;
}

Status Assembly::open_memory(const Job& job, const AssemblyPlan& plan) {
  roster_ = Descriptor(memfd_create("tutti-roster", MFD_CLOEXEC));
  if (roster_.get() < 0)
    return Status(Code::out_of_resources,
                  fmt::format("cannot make the job's roster: memfd_create: {}", std::strerror(errno)));
  fcntl(roster_.get(), F_SETFL, O_APPEND);
  path_ = fmt::format("/proc/{}/fd/{}", getpid(), roster_.get());
  return comm::Roster(roster_.get()).add(fmt::format("job {} {}", job.rank_count(), plan.least));
}

Status Assembly::open_file(Job& job, const AssemblyPlan& plan) {
  do {
    roster_ = Descriptor(::open(plan.file.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    if (roster_.get() < 0) return wrong("--rendezvous {}: {}", plan.file, std::strerror(errno));
    flock(roster_.get(), LOCK_EX);
  } while (!same_file(roster_.get(), plan.file));      // the last one of an earlier job has just removed it
  file_ = plan.file;
  char absolute[PATH_MAX];
  path_ = realpath(plan.file.c_str(), absolute) ? absolute : plan.file;
  const bool begin = lock_byte(roster_.get(), F_WRLCK, kLocks);
  Status status = begin && ftruncate(roster_.get(), 0) != 0
                      ? wrong("--rendezvous {}: {}", plan.file, std::strerror(errno))
                      : Status();
  if (!lock_byte(roster_.get(), F_RDLCK, kLocks))
    status = wrong("--rendezvous {}: this file system keeps no locks: {}", plan.file, std::strerror(errno));
  if (status && begin) {
    if (job.job_key.empty()) {
      auto key = random_key();
      if (!key) return key.status();
      job.job_key = std::move(*key);
    }
    const std::string text = fmt::format("job {} {}\nkey {}\n", job.rank_count(), plan.least, job.job_key);
    if (write(roster_.get(), text.data(), text.size()) != ssize_t(text.size()))
      status = wrong("--rendezvous {}: the disk is full", plan.file);
  }
  if (status) status = take_number(job, plan);
  flock(roster_.get(), LOCK_UN);
  return status;
}

// Under the file's lock. A host that comes back gets its old number where that is free.
Status Assembly::take_number(Job& job, const AssemblyPlan& plan) {
  comm::Roster roster(roster_.get());
  const Status status = read(job, roster);
  if (!status) return status;
  if (roster.ranks() != job.rank_count() || roster.least() != plan.least) {
    return wrong("--rendezvous {}: the job there has {} ranks, at least {}; this host was started for {}, at least {}",
                 plan.file, roster.ranks(), roster.least(), job.rank_count(), plan.least);
  }
  for (const std::string& line : roster.other_lines()) {
    if (line.starts_with("key ")) job.job_key = line.substr(4);
  }
  std::vector<int> candidates;
  if (plan.host_number) candidates = {*plan.host_number};
  else {
    for (const auto& [number, host] : hosts_)
      if (host.name == host_name()) candidates.push_back(number);
    for (int number = 0; number < job.host_count; ++number) candidates.push_back(number);
  }
  for (const int number : candidates) {
    if (!lock_byte(roster_.get(), F_WRLCK, kLocks + 1 + number)) continue;
    job.host_rank = number;
    return {};
  }
  return plan.host_number
             ? wrong("--rendezvous {}: another tutti run is host number {} already", plan.file, *plan.host_number)
             : wrong("--rendezvous {}: all {} hosts of the job are there already", plan.file, job.host_count);
}

Status Assembly::open_gossip(const Job& job, const AssemblyPlan& plan) {
  local_address_ = job.host_rank == 0 ? job.master_address : best_address(plan.local_address);
  master_ = join_address(job.master_address, job.master_port);
  // The same port on all hosts where it is free: who comes back may ask any of them.
  const std::string any = local_address_.find(':') == std::string::npos ? "0.0.0.0" : "::";
  std::vector<std::string> elsewhere = {join_address(any, 0)};
  const bool own_machine =
      listenable(job.master_address, 0).ok();  // where several launchers share one, that port is host 0's
  if (!own_machine) elsewhere.insert(elsewhere.begin(), join_address(any, job.master_port));
  const std::string key = job.job_key.empty() ? "address " + master_ : job.job_key;
  auto gossip =
      Gossip::open(roster_.get(), job.host_rank == 0 ? numeric_addresses(master_) : elsewhere, comm::make_job_key(key));
  if (!gossip) return gossip.status();
  gossip_ = std::move(*gossip);
  if (job.host_rank != 0) gossip_->keep_calling({master_});
  return {};
}

Status Assembly::announce(const Job& job, const AssemblyPlan& plan) {
  if (local_address_.empty()) local_address_ = best_address(plan.local_address);
  comm::Roster roster(roster_.get());
  started_ = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch())
                 .count();
  Status status = roster.add(fmt::format("host {} {} {} {} {} {}", job.host_rank, job.local_ranks, host_name(),
                                         join_address(local_address_, gossip_ ? gossip_->port() : 0),
                                         gossip_ ? gossip_->name() : "-", started_));
  if (!status || job.host_rank != 0) return status;
  const auto port = free_port(true);
  if (!port) return port.status();
  return roster.add("meet " + join_address(local_address_, *port));
}

Status Assembly::read(const Job& job, comm::Roster& roster) {
  if (const Status status = roster.read(); !status) return status;
  for (const std::string& line : roster.other_lines()) {
    std::istringstream words(line);
    std::string kind, gossip;
    int number = -1;
    Host host;
    std::int64_t started = 0;
    words >> kind;
    if (kind == "meet") words >> meet_;
    if (kind != "host" || !(words >> number >> host.ranks >> host.name >> host.address >> gossip >> started)) continue;
    if (number < 0 || number >= job.host_count || host.ranks != job.local_ranks) {
      return wrong(
          "host {} was started as number {} with {} ranks, this one as number {} of {} with {}: --nnodes and -n must "
          "be the same on all",
          host.name, number, host.ranks, job.host_rank, job.host_count, job.local_ranks);
    }
    // One that has ended began before us.
    if (gossip_ && number == job.host_rank && gossip != gossip_->name() && started > started_) {
      return wrong("{} was started as host number {} too: each host wants a --node-rank of its own", host.name, number);
    }
    host.calls_us = gossip_ && gossip < gossip_->name();
    host.gossip = gossip;
    const std::lock_guard lock(mutex_);
    hosts_[number] = host;
  }
  if (!gossip_) return {};
  std::set<std::string> calls;      // of two, one calls; host 0 is called by all
  if (job.host_rank != 0) calls.insert(master_);
  for (const auto& [number, host] : hosts_)
    if (number != 0 && number != job.host_rank && !host.calls_us) calls.insert(host.address);
  gossip_->keep_calling(calls);
  return {};
}

void Assembly::stay_in_touch(Job job) {
  comm::Roster roster(roster_.get());
  for (; !ending_; std::this_thread::sleep_for(kTouch)) {
    (void)read(job, roster);
    if (!roster.end() || failed_ || ending_end_.get() < 0) continue;
    const std::string text = "on another host " + *roster.end();
    (void)!write(ending_end_.get(), text.data(), std::min<std::size_t>(text.size(), PIPE_BUF));
    ending_end_.close();
  }
}

bool Assembly::lives(int host) const {
  if (host == number_) return true;
  const std::lock_guard lock(mutex_);
  const auto found = hosts_.find(host);
  if (found == hosts_.end()) return false;
  if (gossip_) return gossip_->hears(found->second.gossip);
  if (!lock_byte(roster_.get(), F_WRLCK, kLocks + 1 + host)) return true;
  lock_byte(roster_.get(), F_UNLCK, kLocks + 1 + host);
  return false;
}

void Assembly::fail(const std::string& why) {
  if (ended_.get() < 0 || failed_.exchange(true)) return;
  (void)comm::Roster(roster_.get()).add("end " + why);
}

bool Assembly::complete(const Job& job) const { return int(hosts_.size()) == job.host_count && !meet_.empty(); }

std::string Assembly::missing(const Job& job, const AssemblyPlan& plan) const {
  std::vector<std::string> names;
  for (int number = 0; number < job.host_count; ++number)
    if (!hosts_.contains(number)) names.push_back(name_of(number, plan.host_names));
  return fmt::format("{}", fmt::join(names, ", "));
}

Status Assembly::wait_for_all(Job& job, const AssemblyPlan& plan) {
  const auto begun = Clock::now(), end = begun + plan.limit;
  auto word = begun + kFirstWord;
  comm::Roster roster(roster_.get());
  for (std::size_t there = 0;; std::this_thread::sleep_for(kLook)) {
    if (const Status status = read(job, roster); !status) return status;
    if (complete(job)) break;
    if (plan.stop()) return Status(Code::aborted, "stopped while waiting for the other hosts");
    const auto now = Clock::now();
    const std::string trouble = gossip_ ? gossip_->trouble(master_) : "";
    const std::string calling = trouble.empty() ? "" : fmt::format("; calling {}: {}", master_, trouble);
    if (now >= end) {
      const bool enough = plan.elastic && !meet_.empty() && int(hosts_.size()) * job.local_ranks >= plan.least;
      if (enough) break;
      return Status(Code::timeout,
                    fmt::format("{} of {} hosts joined within {} s, missing: {}{}. Is tutti run started there, with "
                                "the same flags and TUTTI_JOB_KEY?",
                                hosts_.size(), job.host_count, plan.limit.count() / 1000, missing(job, plan), calling));
    }
    if (now < word && !(there != hosts_.size() && now > begun + kFirstWord)) continue;
    there = hosts_.size();
    word = now + kWord;
    plan.tell(fmt::format("{} of {} hosts joined, waiting for {}, {} s left{}", hosts_.size(), job.host_count,
                          missing(job, plan), std::chrono::ceil<seconds>(end - now).count(), calling));
  }
  const auto meet = split_address(meet_);
  if (!meet) return meet.status();
  job.master_address = meet->host;
  job.master_port = meet->port;
  return {};
}

}  // namespace tutti::tools
