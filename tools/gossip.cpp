// Threads, one a connection and one a listener; all that they share is under one lock. See gossip.h.
#include "tools/gossip.h"
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include "comm/roster.h"
#include "core/socket_address.h"
#include "tools/doctor/sockets.h"

namespace tutti::tools {
namespace {

using doctor::Channel;
using doctor::Clock;
using std::chrono::milliseconds;

constexpr milliseconds kTurn{50};               // how late a line may come
constexpr milliseconds kAgain{300};             // between calls
constexpr milliseconds kAnswer{5'000}, kConnect{1'000};
constexpr int kSilence = 10'000;                // ms until a connection to a host that is cut off is given up

// A host that is gone is noticed without anything being said.
void watch(int socket) {
  const int yes = 1, idle = kSilence / 2000, interval = 1, count = kSilence / 2000, limit = kSilence;
  setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
  setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit, sizeof limit);
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
}

std::vector<std::string> numeric_addresses(const std::string& address, std::string& why) {
  const auto parts = split_address(address);
  if (!parts) return why = parts.status().text(), std::vector<std::string>{};
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (const int failed = getaddrinfo(parts->host.c_str(), nullptr, &hints, &found); failed != 0) {
    why = fmt::format("'{}' cannot be looked up: {}", parts->host, gai_strerror(failed));
    return {};
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> list(found, freeaddrinfo);
  std::vector<std::string> all;
  for (const addrinfo* one = found; one; one = one->ai_next) {
    char host[NI_MAXHOST];
    if (getnameinfo(one->ai_addr, one->ai_addrlen, host, sizeof host, nullptr, 0, NI_NUMERICHOST) == 0)
      all.push_back(join_address(host, parts->port));
  }
  return all;
}

}  // namespace

std::vector<std::string> numeric_addresses(const std::string& address) {
  std::string ignored;
  return numeric_addresses(address, ignored);
}

Gossip::Gossip(int roster, const comm::JobKey& key)
    : roster_(roster),
      key_(key),
      name_(comm::new_ticket()),
      offset_(std::size_t(std::max<off_t>(0, lseek(roster, 0, SEEK_END)))) {}

Result<std::unique_ptr<Gossip>> Gossip::open(int roster, const std::vector<std::string>& addresses,
                                             const comm::JobKey& key) {
  std::unique_ptr<Gossip> gossip(new Gossip(roster, key));
  Status status(Code::invalid_argument, "no address to listen on");
  for (const std::string& text : addresses) {
    const auto address = parse_address(text);
    auto listener = address ? doctor::listen_on(*address) : Result<Descriptor>(address.status());
    status = listener.status();
    if (!status) continue;
    gossip->port_ = split_address(doctor::own_end(listener->get())).value().port;
    gossip->threads_.emplace_back([gossip = gossip.get(), held = std::make_shared<Descriptor>(std::move(*listener))] {
      gossip->listen(std::move(*held));
    });
    return gossip;
  }
  return status;
}

Gossip::~Gossip() {
  ending_ = true;
  for (std::thread& thread : threads_) thread.join();
}

void Gossip::listen(Descriptor listener) {
  std::vector<std::thread> served;
  while (!ending_) {
    if (!doctor::wait_for(listener.get(), POLLIN, Clock::now() + kTurn)) continue;
    Descriptor socket = doctor::accept_from(listener.get());
    if (socket.get() < 0) continue;
    served.emplace_back([this, held = std::make_shared<Descriptor>(std::move(socket))] {
      watch(held->get());
      auto channel = Channel::answer(std::move(*held), key_, Clock::now() + kAnswer);
      if (channel) serve(std::move(*channel));
    });
  }
  for (std::thread& thread : served) thread.join();
}

void Gossip::keep_calling(const std::set<std::string>& addresses) {
  const std::lock_guard lock(mutex_);
  called_ = addresses;
  for (const std::string& address : addresses) {
    if (!trouble_.try_emplace(address, "not called yet").second) continue;
    threads_.emplace_back([this, address] { dial(address); });
  }
}

bool Gossip::wanted(const std::string& address) const {
  const std::lock_guard lock(mutex_);
  return !ending_ && called_.contains(address);
}

void Gossip::tell(const std::string& address, const std::string& trouble) {
  const std::lock_guard lock(mutex_);
  trouble_[address] = trouble;
}

std::string Gossip::trouble(const std::string& address) const {
  const std::lock_guard lock(mutex_);
  const auto found = trouble_.find(address);
  return found == trouble_.end() ? "" : found->second;
}

void Gossip::dial(std::string address) {
  while (wanted(address)) {
    std::string why;
    for (const std::string& one : numeric_addresses(address, why)) {
      auto connection = doctor::connect_to(one, Clock::now() + kConnect);
      if (connection.socket.get() < 0) {
        why = fmt::format("{}: {}", one, connection.attempt.text);
        continue;
      }
      watch(connection.socket.get());
      auto channel = Channel::call(std::move(connection.socket), key_, Clock::now() + kAnswer);
      why = fmt::format("{}: {}", one, channel.status().text());
      if (!channel) continue;
      tell(address, "");
      serve(std::move(*channel));
      why = fmt::format("{}: the connection was lost", one);
      break;
    }
    tell(address, why);
    std::this_thread::sleep_for(kAgain);
  }
  const std::lock_guard lock(mutex_);
  trouble_.erase(address);
}

// The partner of a connection, by the first that it says.
class Gossip::Connected {
 public:
  explicit Connected(Gossip& gossip) : gossip_(gossip) {}
  ~Connected() {
    const std::lock_guard lock(gossip_.mutex_);
    if (const auto at = gossip_.connected_.find(name_); at != gossip_.connected_.end()) gossip_.connected_.erase(at);
  }
  void is(const std::string& name) {
    if (!name_.empty()) return;
    const std::lock_guard lock(gossip_.mutex_);
    gossip_.connected_.insert(name_ = name);
  }

 private:
  Gossip& gossip_;
  std::string name_;
};

bool Gossip::hears(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  return connected_.contains(name);
}

// Until the connection is lost. Everything from the first line on: the other end knows what it has. The last words too.
void Gossip::serve(doctor::Channel channel) {
  std::map<std::string, std::size_t> sent;
  if (!channel.send({{"origin", name_}, {"first", 0}, {"lines", nlohmann::json::array()}}, Clock::now() + kAnswer))
    return;  // who we are
  Connected partner(*this);
  for (bool last = false; !last;) {
    last = ending_;
    for (const auto& [origin, lines] : lines_behind(sent)) {
      if (!channel.send({{"origin", origin}, {"first", sent[origin]}, {"lines", lines}}, Clock::now() + kAnswer))
        return;
      sent[origin] += lines.size();
    }
    if (last || !doctor::wait_for(channel.socket(), POLLIN, Clock::now() + kTurn)) continue;
    const auto message = channel.receive(Clock::now() + kAnswer);
    if (!message) return;
    try {
      partner.is(message->at("origin"));
      take(message->at("origin"), message->at("first"), message->at("lines"));
    } catch (const nlohmann::json::exception&) {
      return;
    }
  }
}

void Gossip::read_own() {
  char bytes[8192];
  for (ssize_t count; (count = pread(roster_, bytes, sizeof bytes, off_t(offset_))) > 0;
       offset_ += std::size_t(count)) {
    partial_.append(bytes, std::size_t(count));
  }
  for (std::size_t end; (end = partial_.find('\n')) != std::string::npos; partial_.erase(0, end + 1)) {
    std::string line = partial_.substr(0, end);
    const auto known = foreign_.find(line);
    if (known == foreign_.end()) lines_[name_].push_back(std::move(line));
    else foreign_.erase(known);
  }
}

std::map<std::string, std::vector<std::string>> Gossip::lines_behind(const std::map<std::string, std::size_t>& known) {
  const std::lock_guard lock(mutex_);
  read_own();
  std::map<std::string, std::vector<std::string>> out;
  for (const auto& [origin, lines] : lines_) {
    const auto at = known.find(origin);
    const std::size_t from = at == known.end() ? 0 : at->second;
    if (from < lines.size()) out[origin] = {lines.begin() + std::ptrdiff_t(from), lines.end()};
  }
  return out;
}

void Gossip::take(const std::string& origin, std::size_t first, const std::vector<std::string>& lines) {
  const std::lock_guard lock(mutex_);
  std::vector<std::string>& known = lines_[origin];
  comm::Roster roster(roster_);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (first + i != known.size() || origin == name_) continue;
    known.push_back(lines[i]);
    foreign_.insert(lines[i]);
    (void)roster.add(lines[i]);
  }
}

}  // namespace tutti::tools
