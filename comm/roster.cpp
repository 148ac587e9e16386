#include "comm/roster.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <sstream>
#include <utility>

namespace tutti::comm {
namespace {

constexpr int kMostRanks = 1 << 20;

std::string hexadecimal(const UniqueId& id) {
  std::string text;
  for (const std::byte byte : id.bytes) text += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  return text;
}

std::optional<UniqueId> id_from(const std::string& text) {
  if (text.size() != 2 * UniqueId::kBytes || text.find_first_not_of("0123456789abcdef") != std::string::npos) return {};
  UniqueId id;
  for (std::size_t i = 0; i < id.bytes.size(); ++i)
    id.bytes[i] = std::byte(std::stoi(text.substr(2 * i, 2), nullptr, 16));
  return id;
}

}  // namespace

std::string new_ticket() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}", random(), random());
}

Result<Roster> Roster::open(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_APPEND | O_CLOEXEC);
  if (descriptor < 0)
    return Status(Code::invalid_argument,
                  fmt::format("the roster {} cannot be opened: {}", path, std::strerror(errno)));
  Roster roster(descriptor);
  roster.owned_ = true;
  if (const Status status = roster.read(); !status) return status;
  if (roster.ranks() == 0)
    return Status(Code::invalid_argument,
                  fmt::format("{} is no roster: its first line is not \"job RANKS LEAST\"", path));
  return roster;
}

Roster::Roster(Roster&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      owned_(other.owned_),
      offset_(other.offset_),
      partial_(std::move(other.partial_)),
      least_(other.least_),
      worlds_(other.worlds_),
      states_(std::move(other.states_)),
      has_waited_(std::move(other.has_waited_)),
      tickets_(std::move(other.tickets_)),
      offers_(std::move(other.offers_)),
      formed_(std::move(other.formed_)),
      end_(std::move(other.end_)),
      other_lines_(std::move(other.other_lines_)) {}

Roster::~Roster() {
  if (owned_ && descriptor_ >= 0) close(descriptor_);
}

Status Roster::add(const std::string& line) {
  const std::string text = line + "\n";
  flock(descriptor_, LOCK_EX);        // O_APPEND alone does not keep lines apart on a network's file system
  lseek(descriptor_, 0, SEEK_END);
  const ssize_t written = write(descriptor_, text.data(), text.size());
  const int why = errno;
  flock(descriptor_, LOCK_UN);
  if (written == ssize_t(text.size())) return {};
  return Status(Code::out_of_resources, fmt::format("the job's roster cannot be written: {}",
                                                    written < 0 ? std::strerror(why) : "the disk is full"));
}

Status Roster::read() {
  std::string bytes(16 * 1024, '\0');
  for (;;) {
    const ssize_t count = pread(descriptor_, bytes.data(), bytes.size(), off_t(offset_));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0)
      return Status(Code::invalid_argument, fmt::format("the job's roster cannot be read: {}", std::strerror(errno)));
    if (count == 0) return {};
    offset_ += std::size_t(count);
    partial_.append(bytes.data(), std::size_t(count));
    std::size_t begin = 0;
    for (std::size_t end; (end = partial_.find('\n', begin)) != std::string::npos; begin = end + 1) {
      take(std::string_view(partial_).substr(begin, end - begin));
    }
    partial_.erase(0, begin);
  }
}

void Roster::take(std::string_view line) {
  std::istringstream words{std::string(line)};
  std::string kind, ticket, id;
  words >> kind;
  const auto number = [&](int below) {
    int n = -1;
    return words >> n && n >= 0 && n < below ? n : -1;
  };
  if (kind == "job" && states_.empty()) {
    const int all = number(kMostRanks), least = number(kMostRanks);
    states_.assign(std::size_t(std::max(all, 0)), State::absent);
    has_waited_.assign(states_.size(), false);
    tickets_.resize(states_.size());
    least_ = std::max(least, 1);
  } else if (kind == "wait") {
    const int slot = number(ranks());
    if (slot >= 0 && words >> ticket) wait(slot, ticket);
  } else if (kind == "offer") {
    words >> ticket;
    Offer offer;
    offer.rank = number(ranks());
    offer.count = number(ranks() + 1);
    words >> id;
    const auto decoded = id_from(id);
    if (offer.rank < 0 || !decoded || !offers_.try_emplace(ticket, Offer{offer.rank, offer.count, *decoded}).second)
      return;
    const auto of = std::find(tickets_.begin(), tickets_.end(), ticket);
    if (of != tickets_.end()) states_[std::size_t(of - tickets_.begin())] = State::offered;
  } else if (kind == "formed") {
    std::map<int, std::string> members;
    char colon = 0;
    for (int slot; (slot = number(ranks())) >= 0 && words >> colon >> ticket;) members[slot] = ticket;
    form(members);
  } else if (kind == "gone") {
    if (const int slot = number(ranks()); slot >= 0) states_[std::size_t(slot)] = State::gone;
  } else if (kind == "end") {
    if (!end_) end_ = line.size() > 4 ? std::string(line.substr(4)) : "";
  } else {
    other_lines_.emplace_back(line);
  }
}

void Roster::wait(int slot, const std::string& ticket) {
  has_waited_[std::size_t(slot)] = true;
  if (formed_.contains(ticket)) return;
  states_[std::size_t(slot)] = offers_.contains(ticket) ? State::offered : State::waiting;
  tickets_[std::size_t(slot)] = ticket;
}

// Who has died since and waits again has another ticket, and keeps waiting.
void Roster::form(const std::map<int, std::string>& members) {
  ++worlds_;
  for (State& state : states_)
    if (state == State::member) state = State::absent;
  for (const auto& [slot, ticket] : members) {
    const bool again = !formed_.insert(ticket).second;
    std::string& newest = tickets_[std::size_t(slot)];
    const State state = states_[std::size_t(slot)];
    if (state == State::gone || (newest != ticket && (again || state == State::waiting))) continue;
    newest = ticket;
    states_[std::size_t(slot)] = State::member;
  }
}

int Roster::count(State state) const { return int(std::count(states_.begin(), states_.end(), state)); }

std::vector<Roster::Waiting> Roster::waiting() const {
  std::vector<Waiting> all;
  for (int slot = 0; slot < ranks(); ++slot)
    if (state(slot) == State::waiting) all.push_back({slot, tickets_[std::size_t(slot)]});
  return all;
}

std::optional<Roster::Offer> Roster::offer(const std::string& ticket) const {
  const auto found = offers_.find(ticket);
  return found == offers_.end() ? std::nullopt : std::optional(found->second);
}

std::string Roster::offer_line(const std::string& ticket, const Offer& offer) {
  return fmt::format("offer {} {} {} {}", ticket, offer.rank, offer.count, hexadecimal(offer.id));
}

}  // namespace tutti::comm
