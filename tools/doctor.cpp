#include "tools/doctor.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <tutti/version.h>
#include <algorithm>
#include <fstream>
#include <future>
#include <memory>
#include <thread>

#include "comm/launch_environment.h"
#include "core/config.h"
#include "tools/doctor/baseline.h"
#include "tools/doctor/coordinator.h"
#include "tools/doctor/findings.h"
#include "tools/doctor/meeting.h"
#include "tools/doctor/member.h"
#include "tools/doctor/trial.h"
#include "tools/doctor/view.h"
#include "tools/refusal.h"

namespace tutti::tools {
namespace {

using namespace doctor;

struct Asked {
  bool json = false;
  std::string html, save, against, folder = ".";
  double wait_seconds = 30;
};

int refuse(const Status& status, int exit_status) { return tools::refuse("doctor", status, exit_status); }

Examination begin(int rank_count) {
  Examination out;
  out.version = TUTTI_VERSION_STRING;
  out.when = fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", fmt::gmtime(std::time(nullptr)));
  out.rank_count = rank_count;
  return out;
}

Status write_file(const std::string& file, const std::string& text) {
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  return out ? Status() : Status(Code::out_of_resources, file + " cannot be written");
}

int print(Examination& examination, const Asked& asked, const Examination* before) {
  if (before) {
    auto changes = compare(*before, examination);
    examination.findings.insert(examination.findings.end(), changes.begin(), changes.end());
  }
  const bool colour = isatty(STDOUT_FILENO) && environment("NO_COLOR").empty();
  const std::string text = asked.json ? json_view(examination) : text_view(examination, colour);
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
  for (const auto& [file, content] :
       {std::pair(asked.save, json_view(examination)), std::pair(asked.html, html_view(examination))}) {
    if (file.empty()) continue;
    if (const Status written = write_file(file, content); !written) return refuse(written, kFailure);
  }
  return examination.worst() == Verdict::fail ? kFailure : 0;
}

std::string key_text(const comm::Launch& launch) {
  const std::string own = environment("TUTTI_JOB_KEY");
  return own.empty() ? fmt::format("doctor {}", fmt::join(launch.addresses, " ")) : own;
}

MeetingPlace place_of(const comm::Launch& launch) { return {launch.addresses, comm::make_job_key(key_text(launch))}; }

Facts own_facts(const comm::Launch& launch, const Asked& asked) {
  FactsWish wish{.rank = launch.rank, .local_rank = std::max(0, launch.local_rank), .disk_folder = asked.folder};
  if (wish.local_rank > 0) wish.disk_folder = "";  // one a host is enough
  if (!launch.addresses.empty()) wish.meeting_host = host_of(launch.addresses[0]);
  return read_facts(wish);
}

Deadline meeting_deadline(const Asked& asked) {
  return Clock::now() + std::chrono::milliseconds(std::int64_t(asked.wait_seconds * 1000));
}

int on_one_host(const comm::Launch& launch, const Asked& asked, const Examination* before) {
  Examination examination = begin(1);
  examination.hosts.push_back(own_facts(launch, asked));
  for (const char* transport : {"shm", "tcp"}) examination.trials.push_back(try_locally(transport));
  examination.findings = examine(examination);
  return print(examination, asked, before);
}

int as_member(const comm::Launch& launch, const Asked& asked) {
  const Facts own = own_facts(launch, asked);
  Call call = call_meeting(place_of(launch), meeting_deadline(asked));
  if (!call.channel) {
    Examination examination = begin(launch.rank_count);
    examination.hosts.push_back(own);
    examination.findings = why_not(call, own);
    examination.findings.push_back({"missing", own.host, Verdict::fail,
                                    fmt::format("rank {} could not reach rank 0 at {} within {:g} s", launch.rank,
                                                fmt::join(launch.addresses, ", "), asked.wait_seconds),
                                    "see above; rank 0 says on its side who has not come"});
    std::fputs((asked.json ? json_view(examination) : text_view(examination, false)).c_str(), stdout);
    return kFailure;
  }
  Status status = call.channel->send(own, Clock::now() + std::chrono::seconds(10));
  if (status) status = serve_orders(std::move(*call.channel), own, key_text(launch));
  if (status) return 0;
  return refuse({status.code(), fmt::format("rank {}: rank 0 went away before the end, or refused this rank: {}",
                                            launch.rank, status.text())},
                kFailure);
}

// SIGTERM (from a launcher whose other rank has failed) and SIGINT end the wait for ranks, not the report.
Descriptor take_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  return Descriptor(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
}

// Rank 0 is a member too, at the other end of a pair of local sockets.
std::thread start_own_member(const MeetingPlace& place, const Facts& own, const std::string& key,
                             std::map<int, Channel>& channels) {
  int ends[2] = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return {};
  std::promise<bool> answered;
  auto future = answered.get_future();
  std::thread thread([place, own, key, end = ends[1], ready = std::move(answered)]() mutable {
    auto channel = Channel::call(Descriptor(end), place.key, Clock::now() + std::chrono::seconds(5));
    ready.set_value(channel.ok());
    if (channel) (void)serve_orders(std::move(*channel), own, key);
  });
  auto channel = Channel::answer(Descriptor(ends[0]), place.key, Clock::now() + std::chrono::seconds(5));
  if (future.get() && channel) channels.emplace(0, std::move(*channel));
  return thread;
}

int as_coordinator(const comm::Launch& launch, const Asked& asked, const Examination* before) {
  const Deadline deadline = meeting_deadline(asked);
  const Descriptor stop = take_signals();
  const MeetingPlace place = place_of(launch);
  Examination examination = begin(launch.rank_count);
  const auto listeners = open_meeting(place);
  Facts own = own_facts(launch, asked);  // callers wait in the listener's queue meanwhile
  if (!listeners) {
    examination.hosts.push_back(own);
    examination.findings = examine(examination);
    examination.findings.push_back({"meeting", own.host, Verdict::fail,
                                    fmt::format("rank 0 cannot open the meeting point: {}", listeners.status().text()),
                                    "end the program that holds the port, or choose another one: --master-port"});
    return print(examination, asked, before);
  }
  Gathered gathered = gather(*listeners, place, launch.rank_count, deadline, stop.get());
  const bool stopped = Clock::now() < deadline;  // of no meaning when all have come
  const std::string absent = stopped ? "did not come before this job was stopped"
                                     : fmt::format("did not come within {:g} s", asked.wait_seconds);
  for (int rank = 1; rank < launch.rank_count; ++rank)
    if (!gathered.channels.contains(rank)) examination.missing.push_back({rank, absent});
  examination.strangers = gathered.strangers;
  gathered.facts.emplace(0, own);
  std::thread member = start_own_member(place, own, key_text(launch), gathered.channels);
  if (gathered.channels.contains(0)) coordinate(gathered.channels, gathered.facts, examination);
  gathered.channels.clear();
  if (member.joinable()) member.join();
  examination.findings = examine(examination);
  return print(examination, asked, before);
}

int full(const Asked& asked) {
  if (!(asked.wait_seconds >= 0 && asked.wait_seconds <= 3600))
    return refuse(
        {Code::invalid_argument, fmt::format("--wait wants 0 to 3600 seconds and got {}", asked.wait_seconds)},
        kWrongUse);
  std::unique_ptr<Examination> before;
  if (!asked.against.empty()) {
    auto read = read_examination(asked.against);
    if (!read) return refuse(read.status(), kWrongUse);
    before = std::make_unique<Examination>(std::move(*read));
  }
  if (const auto settings = read_settings(); !settings) return refuse(settings.status(), kFailure);
  const auto launch = comm::read_launch();
  if (!launch) return refuse(launch.status(), kFailure);
  if (launch->rank_count == 1) return on_one_host(*launch, asked, before.get());
  if (launch->addresses.empty() || launch->addresses[0][0] == '@')
    return refuse({Code::invalid_argument,
                   "several ranks of one host need no examination of the network: run `tutti doctor` alone"},
                  kWrongUse);
  setenv("TUTTI_PROBE", "0", 1);  // before any thread: measuring a machine for plans is not wanted here
  return launch->rank == 0 ? as_coordinator(*launch, asked, before.get()) : as_member(*launch, asked);
}

int quick(bool json) {
  Examination examination = begin(1);
  if (const auto settings = read_settings(); !settings) return refuse(settings.status(), kFailure);
  for (const char* transport : {"shm", "tcp"}) examination.trials.push_back(try_locally(transport));
  examination.findings = examine(examination);
  examination.findings.insert(
      examination.findings.begin(),
      {"version", "", Verdict::pass,
       fmt::format("tutti {} (wire {}), transports shm and tcp", TUTTI_VERSION_STRING, kWireVersion), ""});
  return print(examination, {.json = json}, nullptr);
}

}  // namespace

void add_doctor(CLI::App& app, int& status) {
  CLI::App* verb = app.add_subcommand(
      "doctor", "say what is wrong with this host, or with the hosts of a job (as a program of `tutti run`)");
  auto asked = std::make_shared<Asked>();
  verb->add_flag("--json", asked->json, "print JSON instead of the tick list");
  verb->add_option("--html", asked->html, "also write the tick list as one self-contained page to this file");
  verb->add_option("--save", asked->save, "also keep all that was found in this file");
  verb->add_option("--against", asked->against,
                   "also say what has changed since the run that --save has kept in this file");
  verb->add_option("--folder", asked->folder, "folder whose disk is measured (the working folder)");
  verb->add_option("--wait", asked->wait_seconds, "seconds that the hosts wait for each other (30)");
  CLI::App* quickly =
      verb->add_subcommand("quick", "in less than two seconds: the library, and a tiny all_reduce over each transport");
  quickly->add_flag("--json", asked->json, "print JSON instead of the tick list");
  verb->require_subcommand(0, 1);
  verb->callback([&status, asked, quickly] { status = quickly->parsed() ? quick(asked->json) : full(*asked); });
}

}  // namespace tutti::tools
