#include "tools/doctor/meeting.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>

#include <algorithm>
#include <thread>

#include "tools/doctor/findings.h"
#include "tools/text_block.h"

namespace tutti::tools::doctor {
namespace {

using std::chrono::milliseconds;

// A caller is patient: rank 0 may still be reading its own facts. Rank 0 is not: one silent stranger holds up the
// others.
constexpr milliseconds kHandshake{2000}, kAnswered{10000}, kConnect{3000}, kPause{300};
constexpr std::size_t kMostStrangers = 20;

// As the library opens its meeting point: on all addresses of the family, on loopback when the name means nothing else.
void add_wildcards(const std::string& address, std::vector<std::string>& out) {
  const auto split = split_address(address);
  if (!split) return;
  const Lookup found = look_up(split->host);
  const bool beyond = !all_loopback(found.addresses);
  for (const bool v6 : {false, true}) {
    const bool named = std::any_of(found.addresses.begin(), found.addresses.end(),
                                   [v6](const std::string& a) { return (a.find(':') != std::string::npos) == v6; });
    if (!named && !(found.addresses.empty() && !v6)) continue;
    const std::string text =
        join_address(v6 ? (beyond ? "::" : "::1") : (beyond ? "0.0.0.0" : "127.0.0.1"), split->port);
    if (std::find(out.begin(), out.end(), text) == out.end()) out.push_back(text);
  }
}

// A caller proves the key, then sends its facts. What was wrong with it, or nothing.
std::string welcome(Descriptor socket, const MeetingPlace& place, int rank_count, Gathered& out) {
  const Deadline deadline = Clock::now() + kHandshake;
  auto channel = Channel::answer(std::move(socket), place.key, deadline);
  if (!channel) return channel.status().text();
  const auto message = channel->receive(deadline);
  if (!message) return message.status().text();
  const auto facts = parse<Facts>(dump(*message));
  if (!facts) return "facts that cannot be read: " + facts.status().text();
  if (facts->rank < 1 || facts->rank >= rank_count)
    return fmt::format("says that it is rank {} of {}", facts->rank, rank_count);
  if (out.facts.contains(facts->rank))
    return fmt::format("says that it is rank {}, which is here already", facts->rank);
  out.facts.emplace(facts->rank, *facts);
  out.channels.emplace(facts->rank, std::move(*channel));
  return "";
}

void note_stranger(std::vector<std::string>& strangers, const std::string& text) {
  const bool known =
      std::find(strangers.begin(), strangers.end(), text) != strangers.end();  // who calls again and again
  if (!known && strangers.size() < kMostStrangers) strangers.push_back(text);
}

// Numeric addresses of the place; the look-up of its first host goes to `lookup`.
std::vector<std::string> resolve(const MeetingPlace& place, Lookup& lookup) {
  std::vector<std::string> out;
  bool first = true;
  for (const std::string& address : place.addresses) {
    const auto split = split_address(address);
    if (!split) continue;
    const Lookup found = look_up(split->host);
    if (std::exchange(first, false)) lookup = found;
    for (const std::string& host : found.addresses) out.push_back(join_address(host, split->port));
  }
  return out;
}

Attempt call_one(const std::string& address, const comm::JobKey& key, Deadline deadline,
                 std::optional<Channel>& channel) {
  Connection connection = connect_to(address, std::min(deadline, Clock::now() + kConnect));
  if (connection.socket.get() < 0) return connection.attempt;
  auto called = Channel::call(std::move(connection.socket), key, Clock::now() + kAnswered);
  if (called) {
    channel = std::move(*called);
    return connection.attempt;
  }
  connection.attempt.reach = Reach::stranger;
  connection.attempt.text = called.status().text();
  return connection.attempt;
}

// Who answered in an earlier round says more than that nobody does now: rank 0 may have given up waiting in between.
void keep_stranger(const std::vector<Attempt>& before, Attempt& now) {
  if (now.reach == Reach::connected) return;
  for (const Attempt& earlier : before)
    if (earlier.address == now.address && earlier.reach == Reach::stranger) now = earlier;
}

}  // namespace

Result<std::vector<Descriptor>> open_meeting(const MeetingPlace& place) {
  std::vector<std::string> wildcards;
  for (const std::string& address : place.addresses) add_wildcards(address, wildcards);
  if (wildcards.empty())
    return Status(Code::invalid_argument, fmt::format("\"{}\" is no address to meet at: want \"host:port\"",
                                                      place.addresses.empty() ? "" : place.addresses[0]));
  std::vector<Descriptor> out;
  for (const std::string& text : wildcards) {
    const auto address = parse_address(text);
    if (!address) return address.status();
    auto listener = listen_on(*address);
    if (listener)
      out.push_back(std::move(*listener));
    else if (out.empty())
      return listener.status();
  }
  return out;
}

Gathered gather(const std::vector<Descriptor>& listeners, const MeetingPlace& place, int rank_count, Deadline deadline,
                int stop) {
  Gathered out;
  while (int(out.channels.size()) + 1 < rank_count && Clock::now() < deadline) {
    std::vector<pollfd> polled;
    for (const Descriptor& listener : listeners) polled.push_back({listener.get(), POLLIN, 0});
    polled.push_back({stop, POLLIN, 0});
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
    if (poll(polled.data(), polled.size(), int(std::max<long long>(0, left.count()))) <= 0) continue;
    if (polled.back().revents & POLLIN) break;
    for (std::size_t i = 0; i < listeners.size(); ++i) {
      if (!(polled[i].revents & POLLIN)) continue;
      Descriptor socket = accept_from(listeners[i].get());
      if (socket.get() < 0) continue;
      const std::string from = host_of(other_end(socket.get()));
      const std::string wrong = welcome(std::move(socket), place, rank_count, out);
      if (!wrong.empty()) note_stranger(out.strangers, fmt::format("{}: {}", from, printable(wrong)));
    }
  }
  return out;
}

Call call_meeting(const MeetingPlace& place, Deadline deadline) {
  Call out;
  do {
    const auto addresses = resolve(place, out.lookup);
    const auto before = std::exchange(out.attempts, {});
    for (const std::string& address : addresses) {
      out.attempts.push_back(call_one(address, place.key, deadline, out.channel));
      keep_stranger(before, out.attempts.back());
      if (out.channel) return out;
    }
    std::this_thread::sleep_for(
        std::min<Clock::duration>(kPause, std::max<Clock::duration>(deadline - Clock::now(), milliseconds(0))));
  } while (Clock::now() < deadline);
  for (Attempt& attempt : out.attempts)
    if (attempt.reach == Reach::filtered) attempt.host_answers = host_answers(attempt.address);
  return out;
}

std::vector<Finding> why_not(const Call& call, const Facts& own) {
  std::vector<Finding> out;
  const Lookup& name = call.lookup;
  const std::string about = fmt::format("rank {} to rank 0", own.rank);
  if (name.addresses.empty()) {
    out.push_back({"names", own.host, Verdict::fail,
                   fmt::format("'{}' resolves to nothing here: {}", name.name, name.error),
                   fmt::format("give rank 0's address as a number, or enter '{}' in /etc/hosts or DNS", name.name)});
    return out;
  }
  if (all_loopback(name.addresses)) {
    out.push_back({"names", own.host, Verdict::fail,
                   fmt::format("'{}' resolves to {} here, which is this host itself, and rank 0 may be on another",
                               name.name, name.addresses[0]),
                   fmt::format("remove '{}' from the 127.… lines of /etc/hosts here, or give the address as a number",
                               name.name)});
  } else if (interface_of(own, name.addresses[0])) {
    out.push_back({"names", own.host, Verdict::note,
                   fmt::format("'{}' is {}, an address of this host itself; rank 0 is not reached there", name.name,
                               name.addresses[0]),
                   "check that --master-addr names the host of rank 0"});
  }
  for (const Attempt& attempt : call.attempts) out.push_back(reach_finding(attempt, about));
  if (name.addresses[0] != name.name && !call.attempts.empty() && call.attempts[0].reach != Reach::stranger)
    out.push_back({"names", own.host, Verdict::note,
                   fmt::format("'{}' resolves to {} here", name.name, fmt::join(name.addresses, ", ")),
                   "if that is not rank 0's host, correct /etc/hosts or DNS"});
  return out;
}

}  // namespace tutti::tools::doctor
