#include "comm/join.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <numeric>
#include <system_error>
#include <thread>

#include "comm/bootstrap.h"
#include "comm/crowding.h"
#include "comm/engine.h"
#include "comm/journal.h"
#include "comm/launch_environment.h"
#include "comm/member.h"
#include "comm/placement.h"
#include "comm/probe.h"
#include "comm/world_directory.h"
#include "core/interfaces.h"
#include "core/log.h"
#include "core/posix_loop.h"
#include "kernels/kernels.h"
#include "topology/place.h"

namespace tutti::comm {
namespace {

constexpr std::chrono::minutes kMeetingLimit{60};   // an id that nobody uses does not keep its thread for ever

// The meetings that this process hosts. Never destroyed: their threads may still be at work while the process ends.
struct Hosted {
  struct Meeting {
    std::shared_ptr<Loop> loop;
    std::shared_ptr<std::atomic<bool>> over;
  };
  std::mutex mutex;
  std::map<std::array<std::byte, UniqueId::kBytes>, Meeting> meetings;
};
Hosted& hosted() {
  static Hosted& all = *new Hosted;
  return all;
}

// Nobody else will come: to a world of one rank.
void end_meeting(const UniqueId& id) {
  const std::lock_guard held(hosted().mutex);
  const auto at = hosted().meetings.find(id.bytes);
  if (at == hosted().meetings.end()) return;
  *at->second.over = true;
  at->second.loop->wake();
}

log::Level level_from(const std::string& name) {
  return name == "error"   ? log::Level::error
         : name == "info"  ? log::Level::info
         : name == "debug" ? log::Level::debug
                           : log::Level::warning;
}

Result<Settings> settings_of(const Options& options) {
  auto settings = read_settings();
  if (!settings) return settings;
  if (options.init_timeout.count() > 0) settings->init_timeout = options.init_timeout;
  if (options.timeout.count() > 0) {
    settings->absent_timeout = options.timeout;
    settings->timeout = settings->timeout.count() > 0 ? std::min(settings->timeout, options.timeout) : options.timeout;
  }
  if (!options.job_key.empty()) settings->job_key = options.job_key;
  log::set_level(level_from(settings->log));
  if (!settings->place.empty() && !topology::parse_place(settings->place))
    return Status(
        Code::invalid_argument,
        fmt::format("TUTTI_PLACE={}: wanted package/NUMA node, such as 1/3, either may be left out", settings->place));
  if (!settings->interface.empty())
    if (const auto addresses = choose_addresses(interface_addresses(), settings->interface, true); !addresses)
      return Status(Code::invalid_argument,
                    fmt::format("TUTTI_INTERFACE={}: {}", settings->interface, addresses.status().text()));
  if (settings->simd.empty()) return settings;
  for (auto level : kernels::simd_levels())
    if (settings->simd == kernels::name_of(level) && kernels::set_simd_level(level)) return settings;
  return Status(Code::invalid_argument, fmt::format("TUTTI_SIMD={}: this machine runs up to {}", settings->simd,
                                                    kernels::name_of(kernels::simd_level())));
}

// The secret that was given, or one made of what the ranks have in common, with a word about it.
JobKey key_of(const Settings& settings, const std::vector<std::string>& addresses, const std::string& job) {
  if (!settings.job_key.empty()) return make_job_key(settings.job_key);
  const bool local = std::all_of(addresses.begin(), addresses.end(), [](const std::string& a) {
    return a.starts_with("@") || a.starts_with("127.") || a.starts_with("[::1]") || a.starts_with("localhost:");
  });
  log::write_once(local ? log::Level::info : log::Level::warning,
                  "no job key: anyone who can reach this job's ports can guess it; set TUTTI_JOB_KEY to the same "
                  "secret on all ranks");
  std::string common = job;
  for (const auto& a : addresses) common += "\n" + a;
  return make_job_key(common);
}

Result<std::shared_ptr<Member>> join_world(JoinRequest request) {
  if (request.settings.encrypt && request.rank_0_hosts && request.rank_count > 1 && request.settings.job_key.empty())
    return Status(Code::invalid_argument,
                  "TUTTI_ENCRYPT=1 needs a secret: set TUTTI_JOB_KEY to the same one on all ranks");
  if (request.rank_count < 1 || request.rank < 0 || request.rank >= request.rank_count)
    return Status(Code::invalid_argument, fmt::format("rank {} of {}: wanted a rank from 0 to rank_count - 1",
                                                      request.rank, request.rank_count));
  if (const auto signal = Inquiry::signal_from(environment("TUTTI_REPORT_SIGNAL")); !signal.ok())
    return signal.status();
  log::set_rank(request.rank);
  std::unique_ptr<Loop> loop = make_posix_loop(request.settings);
  if (request.rank_count == 1) return make_member(std::move(loop), nullptr, request.settings);
  Profile profile;
  if (request.settings.probe) profile = read_profile(profile_folder(), key_of_this_machine(request.settings));
  request.figures = profile.figures;
  request.figures.trials_mark = profile.mark(request.rank_count);
  auto task = join(*loop, request);
  task.start();
  auto world = run_until_done(*loop, task);
  if (!world) return world.status();
  return make_member(std::move(loop), std::move(*world), request.settings, true, profile);
}

// What trials of this world are told by.
Medium medium_of(const std::vector<RankInfo>& ranks, const Settings& settings) {
  const bool one_host =
      std::all_of(ranks.begin(), ranks.end(), [&](const RankInfo& r) { return r.same_host(ranks[0]); });
  return one_host ? medium_within_hosts(settings) : Medium::network;
}

// This rank's, where all have the same.
Trials agreed_trials(const std::vector<RankInfo>& ranks, const Placement& placement, const Profile& profile,
                     const Settings& settings) {
  const Trials* const own = profile.find(medium_of(ranks, settings), int(ranks.size()), shape_of(placement.levels));
  return own && have_trials(ranks) ? *own : Trials{};
}

// Of all ranks' links and reductions: what is wanted is measured, the rest is known.
Status measure_links(const std::shared_ptr<Member>& own, std::vector<RankInfo>& ranks, const Settings& settings,
                     Wanted wanted) {
  const auto measured = probe(own, ranks, settings, wanted);
  if (!measured) return measured.status();
  for (std::size_t r = 0; r < ranks.size(); ++r) ranks[r].figures = overlaid(ranks[r].figures, (*measured)[r]);
  return {};
}

// Measures what no profile tells, plans with it from here on, and keeps it for the next start.
Status measure(const std::shared_ptr<Engine>& engine, Member& world, std::vector<RankInfo> ranks,
               const Placement& placement, Planner planner, const Settings& settings, Profile profile) {
  const Wanted wanted = wanted_figures(ranks, settings);
  const bool tries = int(ranks.size()) <= kMostTrialRanks && (wanted.links() || placement.prices.trials.ranks == 0);
  if (!wanted.links() && !tries) return {};
  std::vector<int> everyone(ranks.size());
  std::iota(everyone.begin(), everyone.end(), 0);
  std::shared_ptr<Member> own;
  {
    auto held = engine->lock();
    own = std::make_shared<Member>(engine, Engine::kProbeCommunicator, std::move(everyone), world.rank(),
                                   placement.levels, std::move(planner));
    engine->add_member(own);
  }
  Status status = wanted.links() ? measure_links(own, ranks, settings, wanted) : Status();
  Prices prices = place_ranks(ranks, settings).prices;
  Result<Trials> trials = status.ok() && tries ? try_candidates(*own, prices) : Result<Trials>(Trials{});
  own->destroy(std::chrono::milliseconds(0));
  if (!status) return status;
  if (!trials) return trials.status();
  prices.trials = *trials;
  world.set_prices(std::move(prices));
  const RankInfo& self = ranks[std::size_t(world.rank())];
  Figures host;
  int first = world.rank();
  for (const RankInfo& r : ranks) {
    if (!r.same_host(self)) continue;
    host = slower(host, r.figures);
    first = std::min(first, r.rank);
  }
  if (first != world.rank()) return {};
  host.trials_mark = 0;
  profile.figures = overlaid(profile.figures, host);
  if (tries) profile.keep(medium_of(ranks, settings), std::move(*trials));
  if (Status written = write_profile(profile_folder(), key_of_this_machine(settings), profile); !written)
    log::write_once(log::Level::info, fmt::format("the figures of this machine are not kept: {}", written.text()));
  return {};
}

// A world that is driven by hand (a simulated one) has recorders where a folder is named.
std::unique_ptr<record::Recorder> recorder_of(Loop& loop, const std::vector<RankInfo>& ranks, int rank,
                                              const Settings& settings, bool threaded) {
  if (!threaded && settings.recorder.empty()) return nullptr;
  const RankInfo& self = ranks[std::size_t(rank)];
  record::Identity identity{0xcbf29ce484222325ull, rank, int(ranks.size()), self.pid, self.host_identity, self.host};
  for (const RankInfo& r : ranks) identity.job = (identity.job ^ r.instance) * 0x100000001b3ull;   // FNV-1a, by words
  if (threaded) return open_recorder(settings.recorder, identity, record::moment_of_this_host);
  return open_recorder(settings.recorder, identity, [&loop] {
    const std::int64_t now = loop.now().time_since_epoch().count();
    return record::Moment{std::uint64_t(now), now, now};
  });
}

}  // namespace

Result<std::shared_ptr<Member>> make_member(std::unique_ptr<Loop> loop, std::unique_ptr<World> world,
                                            const Settings& settings, bool threaded, const Profile& profile) {
  auto rules = parse_rules(settings);
  if (!rules) return rules.status();
  EngineSetup setup;
  setup.settings = settings;
  setup.threaded = threaded;
  Placement placement;
  std::vector<RankInfo> ranks;
  if (world) {
    ranks = world->ranks();
    placement = place_ranks(ranks, settings);
    placement.prices.trials = agreed_trials(ranks, placement, profile, settings);
    setup.world_rank = world->rank();
    setup.world_size = world->rank_count();
    setup.local_rank = world->local_rank();
    setup.numa = world->info(world->rank()).numa;
    setup.oversubscribed = crowding_of_hosts(ranks).at(world->info(world->rank()).host_identity) > 1;
    setup.directory = std::make_unique<WorldDirectory>(*loop, std::move(world));
  }
  setup.loop = std::move(loop);
  if (!ranks.empty()) setup.recorder = recorder_of(*setup.loop, ranks, setup.world_rank, settings, threaded);
  std::vector<int> everyone(std::size_t(setup.world_size));
  std::iota(everyone.begin(), everyone.end(), 0);
  const int rank = setup.world_rank;
  auto engine = std::make_shared<Engine>(std::move(setup));
  Planner planner(std::move(*rules), settings.order == "canonical", placement.prices);
  auto member = std::make_shared<Member>(engine, Engine::kWorldCommunicator, std::move(everyone), rank,
                                         placement.levels, planner.fresh());
  {
    auto held = engine->lock();
    engine->add_member(member);
  }
  if (Status begun = engine->begin(); !begun) {
    member->destroy(std::chrono::milliseconds(0));
    return begun;
  }
  if (settings.probe && threaded && !ranks.empty())
    if (Status status = measure(engine, *member, std::move(ranks), placement, planner.fresh(), settings, profile);
        !status) {
      member->destroy(std::chrono::milliseconds(0));
      return status;
    }
  return member;
}

Result<std::shared_ptr<Member>> join_from_environment(const Options& options) {
  auto settings = settings_of(options);
  if (!settings) return settings.status();
  auto launch = read_launch();
  if (!launch) return launch.status();
  JoinRequest request;
  request.rank = launch->rank;
  request.rank_count = launch->rank_count;
  request.addresses = launch->addresses;
  request.ports = launch->ports;
  request.key = launch->rank_count > 1 ? key_of(*settings, launch->addresses, launch->job) : JobKey{};
  request.settings = std::move(*settings);
  return join_world(std::move(request));
}

Result<std::shared_ptr<Member>> join_at(int rank, int rank_count, const std::string& address, const Options& options) {
  auto settings = settings_of(options);
  if (!settings) return settings.status();
  JoinRequest request;
  request.rank = rank;
  request.rank_count = rank_count;
  request.addresses = {address};
  request.key = key_of(*settings, request.addresses, "");
  request.settings = std::move(*settings);
  return join_world(std::move(request));
}

Result<std::shared_ptr<Member>> join_by_id(int rank, int rank_count, const UniqueId& id, const Options& options) {
  auto settings = settings_of(options);
  if (!settings) return settings.status();
  auto request = request_from(id, rank, rank_count, *settings);
  if (!request) return request.status();
  if (rank_count == 1) end_meeting(id);
  return join_world(std::move(*request));
}

Result<UniqueId> make_unique_id() {
  const auto settings = read_settings();
  if (!settings) return settings.status();
  std::shared_ptr<Loop> loop = make_posix_loop(*settings);
  auto meeting = open_meeting(*loop);
  if (!meeting) return meeting.status();
  const UniqueId id = meeting->id;
  const auto over = std::make_shared<std::atomic<bool>>(false);
  {
    const std::lock_guard held(hosted().mutex);
    hosted().meetings[id.bytes] = {loop, over};
  }
  // Serves until all have met. Detached: the id has no owner whose end could stop it.
  try {
    std::thread([id, loop, over, point = std::shared_ptr<MeetingPoint>(std::move(meeting->point))]() mutable {
      const TimePoint end = loop->now() + kMeetingLimit;
      while (!point->finished() && !*over && loop->now() < end) loop->run(std::chrono::seconds(1));
      point.reset();
      const std::lock_guard held(hosted().mutex);
      hosted().meetings.erase(id.bytes);
    }).detach();
  } catch (const std::system_error& error) {
    return Status(Code::out_of_resources, "the meeting point's thread cannot start: " + error.code().message() +
                                              "; look at ulimit -u, and at pids.max of its cgroup");
  }
  return id;
}

}  // namespace tutti::comm
