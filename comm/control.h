#pragma once
// The control plane of one rank: its links to the ranks at distances 1, 2, 4, ... (see control_neighbours). Small
// messages reach every rank by flooding, in a logarithmic number of hops. A link on one host that ends without a
// goodbye means that the process at its other end is gone, which every rank is told; a link over a network may have
// been cut by something between: whoever made it is asked to make it again, or to say that the rank is gone. No bulk
// data, no order among messages of different ranks.
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "comm/rank_info.h"
#include "core/net.h"

namespace tutti::comm {

class Control {
 public:
  static constexpr std::size_t kMaxMessageBytes = 64 << 10;

  // A link's stream, past its handshake and the start-up's messages. `ranks` must outlive this object.
  Control(int own_rank, const std::vector<RankInfo>& ranks, std::map<int, std::unique_ptr<Stream>> links);
  // Says goodbye, as far as it can be written without waiting.
  ~Control();
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  // To all other ranks, each once. invalid_argument: too long.
  Status spread(std::span<const std::byte> message);
  // Callbacks come from Loop::run and may destroy this object. What came before they are set waits for them.
  void on_message(std::function<void(int from, std::span<const std::byte>)> callback);
  // Once for each rank; also for ranks that have no link here. peer_lost, with the rank as culprit; timeout where it is
  // out of reach.
  void on_lost(std::function<void(int rank, const Status& why)> callback);

  // What tells that a rank is lost, for links that are no control plane yet: a whole frame, and one without its length.
  static std::vector<std::byte> lost_frame(int rank, const std::string& text);
  static std::optional<Status> read_lost(std::span<const std::byte> body);

  std::vector<int> neighbours() const;
  // It said goodbye, or is lost.
  bool gone(int rank) const { return left_.count(rank) > 0 || lost_.count(rank) > 0; }
  // Its process has ended or let go of us, as its kernel said; not so where nothing was heard for too long.
  bool ended(int rank) const { return gone(rank) && unreachable_.count(rank) == 0; }
  // A link more, beside those at distances 1, 2, 4, ..., or instead of one that
  // was cut: what was said last is said again.
  void add_link(int rank, std::unique_ptr<Stream> stream);
  // A link over a network has ended: somebody shall call add_link(), lost() or
  // unreachable(). Without a callback, a death.
  void on_cut(std::function<void(int rank)> callback) { on_cut_ = std::move(callback); }
  // Seen from outside: its process has ended; it cannot be reached. A cut link's end says more than `text`.
  void lost(int rank, const std::string& text);
  void unreachable(int rank, const std::string& text);
  bool linked(int rank) const { return links_.count(rank) > 0 && links_.at(rank).stream; }
  bool linked_within_host(int rank) const;

 private:
  enum class Kind : std::uint8_t { flood = 2, lost, goodbye };  // 1: a table of start-up, never here
  struct Link {
    std::unique_ptr<Stream> stream;  // null: ended
    std::vector<std::byte> in, out;
    std::string cut;                 // how it ended, until there is another
  };
  using Alive = std::weak_ptr<int>;
  static std::vector<std::byte> frame(Kind kind, int origin, std::uint32_t number, std::span<const std::byte> payload);
  void readable(int rank);
  bool parse(int rank, Link& link);  // false: this object or the link is gone
  bool take(int rank, std::span<const std::byte> body);
  void write(Link& link, std::span<const std::byte> bytes);
  void flush(Link& link);
  void forward(int except, std::span<const std::byte> bytes);
  void end(int rank, const std::string& how, bool hung_up = true);
  void lose(int rank, const std::string& text, bool hung_up);
  void tell_message(int from, std::span<const std::byte> message);
  void tell_lost(int rank, const std::string& text, bool hung_up);

  // Messages of one rank that were seen: all below `next`, and those in `above`.
  struct Seen {
    std::uint32_t next = 0;
    std::set<std::uint32_t> above;
    bool insert(std::uint32_t number);
  };

  const int own_rank_;
  const std::vector<RankInfo>& ranks_;
  std::map<int, Link> links_;
  std::uint32_t next_number_ = 0;
  std::map<int, Seen> seen_;
  std::deque<std::vector<std::byte>> said_;   // last, to all: links that are made again hear it again
  std::size_t said_bytes_ = 0;
  std::set<int> left_, lost_, unreachable_;
  std::function<void(int, std::span<const std::byte>)> on_message_;
  std::function<void(int, const Status&)> on_lost_;
  std::function<void(int)> on_cut_;
  std::vector<std::pair<int, std::vector<std::byte>>> early_messages_;
  std::vector<std::pair<int, Status>> early_losses_;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
};

}  // namespace tutti::comm
