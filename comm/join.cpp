#include "comm/join.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <thread>

#include "comm/bootstrap.h"
#include "comm/engine.h"
#include "comm/launch_environment.h"
#include "comm/member.h"
#include "comm/world_directory.h"
#include "core/log.h"
#include "core/posix_loop.h"
#include "kernels/kernels.h"

namespace tutti::comm {
namespace {

constexpr std::chrono::minutes kMeetingLimit{60};   // an id that nobody uses does not keep its thread for ever

log::Level level_from(const std::string& name) {
  return name == "error" ? log::Level::error : name == "info" ? log::Level::info : name == "debug" ? log::Level::debug : log::Level::warning;
}

Result<Settings> settings_of(const Options& options) {
  auto settings = read_settings();
  if (!settings) return settings;
  if (options.init_timeout.count() > 0) settings->init_timeout = options.init_timeout;
  if (!options.job_key.empty()) settings->job_key = options.job_key;
  log::set_level(level_from(settings->log));
  if (settings->simd.empty()) return settings;
  for (auto level : kernels::simd_levels())
    if (settings->simd == kernels::name_of(level) && kernels::set_simd_level(level)) return settings;
  return Status(Code::invalid_argument, fmt::format("TUTTI_SIMD={}: this machine runs up to {}", settings->simd, kernels::name_of(kernels::simd_level())));
}

// The secret that was given, or one made of what the ranks have in common, with a word about it.
JobKey key_of(const Settings& settings, const std::vector<std::string>& addresses, const std::string& job) {
  if (!settings.job_key.empty()) return make_job_key(settings.job_key);
  const bool local = std::all_of(addresses.begin(), addresses.end(), [](const std::string& a) {
    return a.starts_with("@") || a.starts_with("127.") || a.starts_with("[::1]") || a.starts_with("localhost:");
  });
  log::write_once(local ? log::Level::info : log::Level::warning,
                  "no job key: anyone who can reach this job's ports can guess it; set TUTTI_JOB_KEY to the same secret on all ranks");
  std::string common = job;
  for (const auto& a : addresses) common += "\n" + a;
  return make_job_key(common);
}

std::vector<int> groups_by_host(const World& world) {
  std::vector<std::uint64_t> seen;
  std::vector<int> out;
  for (const RankInfo& info : world.ranks()) {
    const auto at = std::find(seen.begin(), seen.end(), info.host_identity);
    out.push_back(int(at - seen.begin()));
    if (at == seen.end()) seen.push_back(info.host_identity);
  }
  return out;
}

// From what all ranks know of each other, so that all price alike.
WireCost wire_cost(const World& world, const std::vector<int>& groups, const Settings& settings) {
  WireCost cost;
  const bool tcp = settings.transport == "tcp" || std::any_of(groups.begin(), groups.end(), [](int g) { return g != 0; });
  if (tcp) {
    cost.alpha = 10e-6;
    cost.message = 3e-6;
    cost.beta = 1 / 2.5e9;
    cost.shares_writes = false;
  }
  std::map<int, int> ranks_on;
  for (int g : groups) ++ranks_on[g];
  for (std::size_t r = 0; r < groups.size(); ++r)
    cost.crowding = std::max(cost.crowding, double(ranks_on[groups[r]]) / std::max(1, world.ranks()[r].cores));
  if (cost.crowding > 1 && !tcp) cost.alpha = 2e-6;      // a wait gives the core to another rank
  return cost;
}

Result<std::shared_ptr<Member>> join_world(JoinRequest request) {
  if (request.rank_count < 1 || request.rank < 0 || request.rank >= request.rank_count)
    return Status(Code::invalid_argument, fmt::format("rank {} of {}: wanted a rank from 0 to rank_count - 1", request.rank, request.rank_count));
  log::set_rank(request.rank);
  std::unique_ptr<Loop> loop = make_posix_loop();
  if (request.rank_count == 1) return make_member(std::move(loop), nullptr, request.settings);
  auto task = join(*loop, request);
  task.start();
  auto world = run_until_done(*loop, task);
  if (!world) return world.status();
  return make_member(std::move(loop), std::move(*world), request.settings);
}

}  // namespace

Result<std::shared_ptr<Member>> make_member(std::unique_ptr<Loop> loop, std::unique_ptr<World> world, const Settings& settings, bool threaded) {
  auto rules = Planner::parse_rules(settings);
  if (!rules) return rules.status();
  EngineSetup setup;
  setup.settings = settings;
  setup.threaded = threaded;
  WireCost cost;
  std::vector<std::vector<int>> levels;
  if (world) {
    std::vector<int> groups = groups_by_host(*world);
    cost = wire_cost(*world, groups, settings);
    setup.world_rank = world->rank();
    setup.world_size = world->rank_count();
    setup.oversubscribed = world->local_rank_count() > world->info(world->rank()).cores;
    if (std::any_of(groups.begin(), groups.end(), [](int g) { return g != 0; })) levels.push_back(std::move(groups));
    setup.directory = std::make_unique<WorldDirectory>(*loop, std::move(world), settings.init_timeout);
  }
  setup.loop = std::move(loop);
  std::vector<int> everyone(std::size_t(setup.world_size));
  std::iota(everyone.begin(), everyone.end(), 0);
  const int rank = setup.world_rank;
  auto engine = std::make_shared<Engine>(std::move(setup));
  Planner planner(std::move(*rules), settings.order == "canonical", cost);
  auto member = std::make_shared<Member>(engine, 0, std::move(everyone), rank, std::move(levels), std::move(planner));
  {
    auto held = engine->lock();
    engine->add_member(member);
  }
  engine->begin();
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
  return join_world(std::move(*request));
}

Result<UniqueId> make_unique_id() {
  std::shared_ptr<Loop> loop = make_posix_loop();
  auto meeting = open_meeting(*loop);
  if (!meeting) return meeting.status();
  const UniqueId id = meeting->id;
  // Serves until all have met. Detached: the id has no owner whose end could stop it.
  std::thread([loop, point = std::shared_ptr<MeetingPoint>(std::move(meeting->point))]() mutable {
    const TimePoint end = loop->now() + kMeetingLimit;
    while (!point->finished() && loop->now() < end) loop->run(std::chrono::seconds(1));
    point.reset();
  }).detach();
  return id;
}

}  // namespace tutti::comm
