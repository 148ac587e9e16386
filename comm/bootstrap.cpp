#include "comm/bootstrap.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <tutti/version.h>
#include <algorithm>
#include <bit>

#include "comm/unique_id.h"
#include "core/check.h"
#include "core/log.h"
#include "core/socket_address.h"
#include "topology/place.h"

namespace tutti::comm {
namespace {

using StreamPtr = std::unique_ptr<Stream>;

constexpr std::chrono::seconds kAnswerGrace{3};  // the meeting point's verdict says more than our own clock
constexpr std::chrono::seconds kLinkLimit{10};   // to link up and spread the table, once all have met
constexpr std::chrono::seconds kTablePatience{2};      // longer than the linking: who waits for a link knows better
constexpr std::chrono::seconds kCheckAfter{2};          // that a rank which should have dialled still lives
constexpr std::chrono::milliseconds kTellLimit{250};   // for ranks that link up with one that has given up
constexpr std::size_t kMaxWordBytes = 4096;            // of what such a one says
constexpr std::chrono::seconds kReportEvery{5};
constexpr std::chrono::milliseconds kFirstPause{10}, kLongestPause{1000}, kFirstRound{250};
constexpr int kDialAttempts = 3;
constexpr std::uint8_t kTableFrame = 1;  // Control::Kind goes on from there

bool is_loopback(const std::string& address) { return address.rfind("127.", 0) == 0 || address.rfind("[::1]", 0) == 0; }
bool is_v6(const std::string& address) { return !address.empty() && address[0] == '['; }

// Where a rank, or the meeting point, can be found by whoever may be on another host.
std::vector<std::string> reachable(Network& network, const std::vector<std::string>& listening) {
  std::vector<std::string> out;
  for (const std::string& host : network.local_addresses(true)) {
    for (const std::string& address : listening) {
      if (address[0] == '@' || is_v6(address) != (host.find(':') != std::string::npos)) continue;
      auto split = split_address(address);
      if (split) out.push_back(join_address(host, split->port));
    }
  }
  return out;
}

constexpr const char* kOwnToEachHost = "; every host has that address for itself";
constexpr const char* kOnlyLoopback =
    "; it offers nothing but loopback addresses, which serve within its own host or container alone: look at "
    "TUTTI_INTERFACE there";

std::vector<std::string> wildcards(Network& network) {
  const auto hosts = network.local_addresses(false);
  const bool v6 = std::ranges::any_of(hosts, [](const auto& host) { return host.find(':') != std::string::npos; });
  return v6 ? std::vector<std::string>{"0.0.0.0", "::"} : std::vector<std::string>{"0.0.0.0"};
}

}  // namespace

// What happens between a request and a World.
class Joining {
 public:
  Joining(Loop& loop, const JoinRequest& request);
  Task<Status> run();
  std::unique_ptr<World> take() { return std::move(world_); }
  void control_arrived(const PeerHello& hello, StreamPtr stream) {
    links_.push({hello.rank, hello.epoch, std::move(stream)});
  }

 private:
  struct NewLink {
    int rank;
    std::uint32_t epoch;
    Result<StreamPtr> stream;
  };
  Status open_doors();
  std::vector<std::string> meeting_hosts(int& port);
  Task<Status> host();
  Task<Status> visit();
  Result<std::vector<std::string>> candidates();
  Task<void> link_to(const RankInfo& peer);
  Task<void> check(const RankInfo& peer);
  Task<Status> unite();
  Task<void> tell(Status why);
  Task<Status> link_up();
  Task<Status> spread_table();
  Task<Status> exchange(int round, std::size_t count);
  Status no_meeting_point(const Status& last) const;
  Status lost(int rank, const Status& why) const;
  std::string meeting_text() const;
  int wrapped(long rank) const { return int((rank + request_.rank_count) % request_.rank_count); }
  PeerHello hello(Purpose purpose) const { return {request_.rank, purpose, answer_.epoch}; }

  Loop& loop_;
  const JoinRequest& request_;
  const TimePoint started_, deadline_;
  TimePoint link_deadline_;
  RankInfo own_;
  std::unique_ptr<World> world_;
  std::unique_ptr<MeetingPoint> meeting_;  // where this rank hosts it
  MeetingAnswer answer_;
  Channel<NewLink> links_;
  std::vector<NewLink> distant_;   // of ranks that are no neighbours, and were done earlier
  std::map<int, StreamPtr> linked_;
  std::set<int> checking_;
  TaskSet dials_;  // dies first
};

Joining::Joining(Loop& loop, const JoinRequest& request)
    : loop_(loop), request_(request), started_(loop.now()),
      deadline_(started_ + request.settings.init_timeout),
      links_(loop) {
  JobKey key = request.key;
  key.encrypt = key.encrypt || request.settings.encrypt;
  world_.reset(new World(loop, request.rank, key, request.settings.link_timeout));
  world_->joining_ = this;
  const HostFacts facts = request.host ? *request.host : read_host_facts();
  own_.rank = request.rank;
  own_.rank_count = request.rank_count;
  own_.host_identity = facts.identity;
  own_.host = facts.name;
  own_.pid = facts.pid;
  own_.cores = facts.cores;
  if (!request.host) own_.cpus = topology::cpus_of_this_thread().to_string();
  const auto place = topology::parse_place(request.settings.place).value_or(topology::place_of_this_thread());
  own_.package = place.package;
  own_.numa = place.numa;
  own_.instance = loop.random();
  own_.version = TUTTI_VERSION_STRING;
  own_.shared_hash = request.settings.shared_hash();
  own_.shared_text = request.settings.shared_text();
  own_.little_endian = std::endian::native == std::endian::little;
  own_.figures = request.figures;
}

Task<Status> Joining::run() {
  if (request_.rank_count < 1 || request_.rank < 0 || request_.rank >= request_.rank_count)
    co_return Status(Code::invalid_argument, fmt::format("rank {} of {}: ranks go from 0 to rank_count - 1",
                                                         request_.rank, request_.rank_count));
  const bool alone = request_.rank_count == 1 && request_.rank_0_hosts;
  if (!alone) {
    Status status = open_doors();
    if (!status) co_return status;
    const bool hosts = request_.rank == 0 && request_.rank_0_hosts;
    auto meeting = hosts ? host() : visit();
    status = co_await meeting;
    if (!status) co_return status;
    world_->epoch_ = answer_.epoch;
    link_deadline_ = std::max(deadline_, loop_.now() + kLinkLimit);
  }
  own_.shared_text.clear();  // compared; nobody needs it any more
  auto uniting = unite();
  if (Status united = co_await uniting; !united) {
    auto telling = tell(united);
    co_await telling;
    co_return united;
  }
  world_->begin_control(std::move(linked_));
  world_->joining_ = nullptr;
  // Who was done earlier may have linked up already where there was need.
  while (auto link = links_.take()) distant_.push_back(std::move(*link));
  for (NewLink& link : distant_)
    if (link.stream && !world_->control_->linked(link.rank))
      world_->arrived({.rank = link.rank, .purpose = Purpose::control, .epoch = link.epoch}, std::move(*link.stream));
  co_return Status();
}

Task<Status> Joining::unite() {
  auto linking = link_up();
  Status status = co_await linking;
  if (!status) co_return status;
  auto spreading = spread_table();
  status = co_await spreading;
  co_return status;
}

// Those who are linked to this rank, or link up shortly, shall name who is at fault, not this rank.
Task<void> Joining::tell(Status why) {
  if (why.culprit() < 0) co_return;
  const auto word = Control::lost_frame(why.culprit(), why.text());
  const TimePoint end = loop_.now() + kTellLimit;
  for (auto& [rank, stream] : linked_) {
    if (rank == why.culprit() || !stream) continue;
    auto writing = write_all(loop_, *stream, word, end);
    co_await writing;
  }
  while (loop_.now() < end) {
    auto popping = links_.pop(end);
    auto link = co_await popping;
    if (!link || !link->stream) continue;
    linked_[link->rank] = std::move(*link->stream);
    auto writing = write_all(loop_, *linked_[link->rank], word, end);
    co_await writing;
  }
  for (auto& [rank, stream] : linked_) {     // closing with bytes unread would reset, and take back what was said
    std::array<std::byte, 4096> rest;
    for (IoResult io = stream->read(rest); io.status.ok() && io.bytes > 0;) io = stream->read(rest);
  }
}

Status Joining::open_doors() {
  World* world = world_.get();
  world->reception_ = std::make_unique<Reception>(
      loop_, world_->key_, request_.rank,
      [world](const PeerHello& hello, StreamPtr stream) { world->arrived(hello, std::move(stream)); });
  Status first;
  bool tcp = false;
  for (const std::string& host : wildcards(loop_.network())) {
    Status status = world->reception_->listen(join_address(host, 0));
    tcp |= status.ok();
    if (!status && first.ok()) first = status;
  }
  if (!tcp) return first;
  own_.addresses = reachable(loop_.network(), world->reception_->addresses());
  if (own_.addresses.size() > kMaxAddresses) own_.addresses.resize(kMaxAddresses);
  own_.unix_name = fmt::format("@tutti-{:016x}-{}", own_.instance, own_.rank);
  world->own_ = own_;
  return world->reception_->listen(own_.unix_name);
}

std::string Joining::meeting_text() const {
  std::string out;
  for (const std::string& address : request_.addresses) out += (out.empty() ? "" : ", ") + address;
  if (request_.ports > 1) out += fmt::format(" (or one of the {} ports behind)", request_.ports - 1);
  return out;
}

// Any address of this host, of the families that the names stand for; loopback and Unix names as they are.
std::vector<std::string> Joining::meeting_hosts(int& port) {
  std::vector<std::string> out;
  bool v4 = false, v6 = false, beyond = false;
  port = 0;
  for (const std::string& address : request_.addresses) {
    if (address[0] == '@') {
      out.push_back(address);
      continue;
    }
    auto split = split_address(address);
    if (!split) continue;
    port = split->port;
    auto resolved = loop_.network().resolve(address);
    if (!resolved) v4 = v6 = beyond = true;
    if (!resolved) continue;
    for (const std::string& a : *resolved) {
      (is_v6(a) ? v6 : v4) = true;
      beyond |= !is_loopback(a);
    }
  }
  if (v4) out.push_back(beyond ? "0.0.0.0" : "127.0.0.1");
  if (v6) out.push_back(beyond ? "::" : "::1");
  return out;
}

Task<Status> Joining::host() {
  meeting_ = std::make_unique<MeetingPoint>(loop_, world_->key_, request_.rank);
  int port = 0;
  auto hosts = meeting_hosts(port);
  if (hosts.empty())
    co_return Status(Code::invalid_argument, fmt::format("\"{}\" is no address to meet at", meeting_text()));
  Status status = meeting_->listen(hosts, port, request_.ports);
  if (!status) co_return Status(status.code(), fmt::format("rank 0 cannot open the meeting point: {}", status.text()));
  Event answered(loop_);
  meeting_->add(own_, deadline_ - loop_.now(), [&](const MeetingAnswer& answer) {
    answer_ = answer;
    answered.set();
  });
  Event::Waiter answering = answered.wait(kNever);  // its timer ends with our patience
  co_await answering;
  if (answer_.status) co_return Status();
  Event::Waiter telling = meeting_->finish().wait(loop_.now() + kHandshakeLimit);
  co_await telling;
  co_return answer_.status;
}

Result<std::vector<std::string>> Joining::candidates() {
  std::vector<std::string> out;
  Status last(Code::invalid_argument, fmt::format("\"{}\" is no address to meet at", meeting_text()));
  for (int i = 0; i < request_.ports; ++i) {
    for (const std::string& address : request_.addresses) {
      std::string candidate = address;
      auto split = split_address(address);
      if (address[0] == '@' && i > 0) continue;
      if (address[0] != '@' && split && split->port + i <= 65535)
        candidate = join_address(split->host, split->port + i);
      auto resolved = loop_.network().resolve(candidate);
      if (!resolved)
        last = resolved.status();
      else
        out.insert(out.end(), resolved->begin(), resolved->end());
    }
    if (out.empty()) break;  // the other ports' names are the same
  }
  if (out.empty()) return last;
  return out;
}

Status Joining::no_meeting_point(const Status& last) const {
  double waited = std::chrono::duration<double>(loop_.now() - started_).count();
  const bool own = std::all_of(request_.addresses.begin(), request_.addresses.end(),
                               [](const std::string& a) { return is_loopback(a) || a.starts_with("localhost:"); }) &&
                   last.text().find("refused") != std::string::npos;
  return Status(
      Code::timeout,
      fmt::format("{} found no meeting point of its job within {:.4g} s at {}; last: {}{}. Was rank 0 started, is this "
                  "the address of its host, has it the same job key, and does no firewall stand between?",
                  own_.describe(), waited, meeting_text(), last.text(), own ? kOwnToEachHost : ""),
      request_.rank_0_hosts ? 0 : -1);
}

Task<Status> Joining::visit() {
  Status last(Code::timeout, "no time was left");
  Nanoseconds pause = kFirstPause, round = kFirstRound;
  TimePoint next_report = loop_.now() + kReportEvery;
  const PeerHello caller = hello(Purpose::meeting);
  while (loop_.now() < deadline_) {
    auto where = candidates();
    if (!where && where.status().code() == Code::invalid_argument) co_return where.status();
    if (where) {
      // One that swallows what it is sent must not keep us from asking the others again.
      const Nanoseconds limit = where->size() == 1 ? Nanoseconds(kHandshakeLimit) : round;
      round = std::min<Nanoseconds>(round * 2, kHandshakeLimit);
      auto dialling = dial(loop_, *where, world_->key_, caller, std::min(deadline_, loop_.now() + limit));
      auto dialled = co_await dialling;
      if (dialled) {
        auto asking =
            ask_meeting_point(loop_, *dialled->stream, own_, deadline_ - loop_.now(), deadline_ + kAnswerGrace);
        auto answer = co_await asking;
        if (answer) {
          answer_ = std::move(*answer);
          co_return answer_.status;
        }
        last = answer.status();
      } else {
        last = dialled.status();
      }
    } else {
      last = where.status();
    }
    if (loop_.now() >= next_report) {
      next_report = loop_.now() + kReportEvery;
      log::info("looking for the meeting point at {}: {}", meeting_text(), last.text());
    }
    SleepUntil later(loop_, loop_.now() + pause / 2 + Nanoseconds(loop_.random() % std::uint64_t(pause.count())));
    co_await later;
    pause = std::min<Nanoseconds>(pause * 2, kLongestPause);
  }
  co_return no_meeting_point(last);
}

Task<void> Joining::link_to(const RankInfo& peer) {
  auto connecting = world_->dial_rank(peer, hello(Purpose::control), link_deadline_);
  auto stream = co_await connecting;
  links_.push({peer.rank, answer_.epoch, std::move(stream)});
}

// Whether a rank that is to dial this one is still there: the connection itself is dropped on arrival.
Task<void> Joining::check(const RankInfo& peer) {
  auto connecting = world_->dial_rank(peer, hello(Purpose::meeting), link_deadline_);
  auto stream = co_await connecting;
  checking_.erase(peer.rank);
  if (!stream && stream.status().code() == Code::peer_lost) links_.push({peer.rank, answer_.epoch, stream.status()});
}

Status Joining::lost(int rank, const Status& why) const {
  std::string who = fmt::format("rank {}", rank);
  for (const RankInfo& info : answer_.neighbours)
    if (info.rank == rank) who = info.describe();
  return Status(why.code() == Code::timeout ? Code::timeout : Code::peer_lost,
                fmt::format("start-up with {} failed: {}", who, why.text()), rank);
}

// Of two neighbours the lower one dials.
Task<Status> Joining::link_up() {
  const auto wanted = control_neighbours(request_.rank, request_.rank_count);
  bool matches = answer_.neighbours.size() == wanted.size();
  for (std::size_t i = 0; matches && i < wanted.size(); ++i) matches = answer_.neighbours[i].rank == wanted[i];
  if (!matches) co_return Status(Code::network, "the meeting point named other neighbours than expected");
  for (const RankInfo& peer : answer_.neighbours)
    if (peer.rank > request_.rank) dials_.spawn(link_to(peer));
  while (linked_.size() < wanted.size()) {
    auto popping = links_.pop(std::min(link_deadline_, loop_.now() + kCheckAfter));
    auto link = co_await popping;
    if (!link && loop_.now() < link_deadline_) {
      for (const RankInfo& peer : answer_.neighbours)
        if (peer.rank < request_.rank && !linked_.count(peer.rank) && checking_.insert(peer.rank).second)
          dials_.spawn(check(peer));
      continue;
    }
    if (!link) {
      int missing = *std::find_if(wanted.begin(), wanted.end(), [&](int rank) { return !linked_.count(rank); });
      co_return lost(missing, Status(Code::timeout, "it did not connect in time"));
    }
    if (link->epoch != answer_.epoch) continue;  // of an earlier life of this job
    if (std::find(wanted.begin(), wanted.end(), link->rank) == wanted.end()) {
      distant_.push_back(std::move(*link));
      continue;
    }
    if (!link->stream) co_return lost(link->rank, link->stream.status());
    linked_[link->rank] = std::move(*link->stream);
  }
  co_return Status();
}

// Round k: this rank has the infos of ranks rank .. rank + 2^k - 1 and gets as many from rank + 2^k.
Task<Status> Joining::spread_table() {
  world_->ranks_.resize(std::size_t(request_.rank_count));
  world_->ranks_[std::size_t(request_.rank)] = own_;
  int round = 0;
  for (long have = 1; have < request_.rank_count; have *= 2, ++round) {
    auto exchanging = exchange(round, std::size_t(std::min(have, request_.rank_count - have)));
    Status status = co_await exchanging;
    if (!status) co_return status;
  }
  co_return Status();
}

Task<Status> Joining::exchange(int round, std::size_t count) {
  const int to = wrapped(request_.rank - (1l << round)), from = wrapped(request_.rank + (1l << round));
  const TimePoint deadline = link_deadline_ + kTablePatience;
  ByteWriter body, message;
  body.number(kTableFrame).number(std::uint8_t(round));
  for (std::size_t i = 0; i < count; ++i) encode(world_->info(wrapped(request_.rank + long(i))), body);
  message.number(std::uint32_t(body.bytes().size())).raw(body.bytes());
  auto writing = write_all(loop_, *linked_[to], message.bytes(), deadline);
  writing.start();  // beside the reading: both sides may be more than a socket holds

  std::array<std::byte, 4> head;
  auto reading = read_exact(loop_, *linked_[from], head, deadline);
  Status status = co_await reading;
  if (!status) co_return lost(from, status);
  std::size_t bytes = ByteReader(head).number<std::uint32_t>();
  if (bytes > std::max(2 + count * kMaxRankInfoBytes, kMaxWordBytes))
    co_return lost(from, Status(Code::network, "it sent a table that is too long"));
  std::vector<std::byte> table(bytes);
  auto rest = read_exact(loop_, *linked_[from], table, deadline);
  status = co_await rest;
  if (!status) co_return lost(from, status);
  if (auto given_up = Control::read_lost(table); given_up && given_up->culprit() != request_.rank) co_return *given_up;
  ByteReader in(table);
  bool good = in.number<std::uint8_t>() == kTableFrame && in.number<std::uint8_t>() == round;
  for (std::size_t i = 0; good && i < count; ++i) {
    auto info = decode_rank_info(in);
    const int rank = wrapped(from + long(i));
    good = info && info->rank == rank;
    if (good) world_->ranks_[std::size_t(rank)] = std::move(*info);
  }
  if (!good || !in.at_end()) co_return lost(from, Status(Code::network, "it sent a table that cannot be read"));
  Status written = co_await writing;
  co_return written.ok() ? written : lost(to, written);
}

void World::arrived(const PeerHello& hello, StreamPtr stream) {
  if (hello.rank < 0 || hello.purpose == Purpose::meeting) return;
  if (hello.purpose == Purpose::control) {
    if (joining_) joining_->control_arrived(hello, std::move(stream));
    else if (control_ && hello.epoch == epoch_ && hello.rank < rank_count() && hello.rank != rank_)
      control_->add_link(hello.rank, std::move(stream));
    return;
  }
  if (hello.epoch != epoch_ || (!ranks_.empty() && hello.rank >= rank_count()))
    return;  // of an earlier life of this job
  if (hello.purpose == Purpose::knock) {
    // While this rank joins it is not heard: who knocks does so again. A link that is there may be cut at the other end, and not here; inside a host it cannot, and the knock is older than the link.
    if (control_ && hello.rank < rank_ && !control_->linked_within_host(hello.rank)) dial_link(hello.rank);
    return;
  }
  if (!on_connection_) return void(early_.emplace_back(hello, std::move(stream)));
  auto callback = on_connection_;  // it may replace itself, or destroy this object
  callback(hello, std::move(stream));
}

void World::set_on_connection(OnConnection callback) {
  on_connection_ = callback;
  auto early = std::move(early_);
  early_.clear();
  for (auto& [hello, stream] : early) callback(hello, std::move(stream));
}

int World::local_rank() const {
  int out = 0;
  for (int r = 0; r < rank_; ++r) out += info(r).same_host(info(rank_));
  return out;
}

int World::local_rank_count() const {
  return int(
      std::count_if(ranks_.begin(), ranks_.end(), [&](const RankInfo& other) { return other.same_host(info(rank_)); }));
}

Task<Result<StreamPtr>> World::dial_rank(const RankInfo& peer, PeerHello hello, TimePoint deadline) {
  const RankInfo& own = own_;
  const bool same_host = peer.same_host(own);
  std::vector<std::string> candidates;
  if (hello.purpose != Purpose::tcp && hello.purpose != Purpose::rdma && same_host)
    candidates.push_back(peer.unix_name);
  for (const std::string& address : peer.addresses)
    if (hello.purpose != Purpose::shm && (same_host || !is_loopback(address))) candidates.push_back(address);
  if (candidates.empty())
    co_return Status(
        Code::unsupported,
        fmt::format("{} and {} have no address in common for {}: {} offers {}; look at TUTTI_INTERFACE there",
                    own.describe(), peer.describe(), name_of(hello.purpose), peer.describe(),
                    peer.addresses.empty() ? "none" : fmt::format("{}", fmt::join(peer.addresses, ", "))),
        peer.rank);
  const bool loopback = std::ranges::all_of(candidates, [](const auto& a) { return a[0] == '@' || is_loopback(a); });
  // Again where a connection was cut before the welcome: its listener may have had enough of a slow path.
  for (int attempt = 1;; ++attempt) {
    auto dialling = dial(loop_, candidates, key_, hello, deadline);
    auto dialled = co_await dialling;
    if (dialled && dialled->peer.rank == peer.rank) co_return std::move(dialled->stream);
    if (dialled)
      co_return Status(Code::peer_lost,
                       fmt::format("rank {} answers where {} was", dialled->peer.rank, peer.describe()), peer.rank);
    const Code code = dialled.status().code();
    if (code != Code::network || attempt == kDialAttempts)
      co_return Status(code == Code::network ? Code::peer_lost : code,
                       fmt::format("cannot reach {}: {}{}", peer.describe(), dialled.status().text(),
                                   loopback && candidates.back()[0] != '@' ? kOnlyLoopback : ""),
                       peer.rank);
    SleepUntil later(loop_, loop_.now() + kFirstPause * attempt);
    co_await later;
  }
}

Task<Result<StreamPtr>> World::connect_to(int rank, Purpose purpose, std::uint16_t index, std::uint16_t count,
                                          std::uint32_t call, TimePoint deadline) {
  TUTTI_CHECK(rank >= 0 && rank < rank_count() && rank != rank_);
  return dial_rank(info(rank), PeerHello{rank_, purpose, epoch_, index, count, call}, deadline);
}

Task<Result<std::unique_ptr<World>>> join(Loop& loop, const JoinRequest& request) {
  Joining joining(loop, request);
  auto running = joining.run();
  Status status = co_await running;
  if (!status) co_return status;
  co_return joining.take();
}

Result<JoinRequest> request_from(const UniqueId& id, int rank, int rank_count, const Settings& settings) {
  auto invitation = read_id(id);
  if (!invitation) return invitation.status();
  JoinRequest out;
  out.rank = rank;
  out.rank_count = rank_count;
  out.addresses = invitation->addresses;
  out.rank_0_hosts = false;
  out.key = make_job_key(invitation->secret);
  out.settings = settings;
  return out;
}

Result<OpenMeeting> open_meeting(Loop& loop) {
  ByteWriter bytes;
  bytes.number(loop.random()).number(loop.random());
  std::string secret(reinterpret_cast<const char*>(bytes.bytes().data()), bytes.bytes().size());
  OpenMeeting out;
  out.point = std::make_unique<MeetingPoint>(loop, make_job_key(secret), -1);
  Status status = out.point->listen(wildcards(loop.network()), 0, 1);
  if (!status) return status;
  std::vector<std::string> hosts;
  for (const std::string& address : reachable(loop.network(), out.point->addresses()))
    hosts.push_back(split_address(address)->host);
  if (hosts.empty()) return Status(Code::network, "this host has no network address, not even a loopback one");
  out.id = make_id(hosts, out.point->port(), secret);
  return out;
}

}  // namespace tutti::comm
