#pragma once
// Gossip: keeps the rosters of a job's hosts alike. The launchers are all connected with one another by TCP, each
// proves the job's key, and a line that is added to one's roster is added to all; what one has heard it passes on. None
// is in the middle: whoever ends, the others go on, and who comes back hears
// what has been said. It understands no line.
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>
#include "comm/handshake.h"
#include "tools/child.h"
#include "tools/doctor/channel.h"

namespace tutti::tools {

// "host:port" with a name or a number for the host, as numbers. Empty: it cannot be looked up.
std::vector<std::string> numeric_addresses(const std::string& address);

class Gossip {
 public:
  // `roster`: open for appending, outlives this; what is in it already stays here. `addresses`: where to listen, the
  // first that works of "host:port" with a number for the host, port 0 for any.
  static Result<std::unique_ptr<Gossip>> open(int roster, const std::vector<std::string>& addresses,
                                              const comm::JobKey& key);
  Gossip(const Gossip&) = delete;
  Gossip& operator=(const Gossip&) = delete;
  ~Gossip();

  const std::string& name() const { return name_; }             // unique
  int port() const { return port_; }
  // Calls these from now on, each again whenever the connection is lost, and no others. Names are looked up each time.
  void keep_calling(const std::set<std::string>& addresses);
  // Whether that one is connected, by its name().
  bool hears(const std::string& name) const;
  // How the last call there came out; "" when it is connected.
  std::string trouble(const std::string& address) const;

 private:
  Gossip(int roster, const comm::JobKey& key);
  void listen(Descriptor listener);
  void dial(std::string address);
  class Connected;
  void serve(doctor::Channel channel);
  void tell(const std::string& address, const std::string& trouble);
  bool wanted(const std::string& address) const;
  void read_own();
  std::map<std::string, std::vector<std::string>> lines_behind(const std::map<std::string, std::size_t>& known);
  void take(const std::string& origin, std::size_t first, const std::vector<std::string>& lines);

  const int roster_;
  const comm::JobKey key_;
  const std::string name_;
  int port_ = 0;
  std::atomic<bool> ending_{false};
  mutable std::mutex mutex_;
  std::size_t offset_ = 0;
  std::string partial_;
  std::map<std::string, std::vector<std::string>> lines_;       // of each launcher, this one too, in its order
  std::multiset<std::string> foreign_;          // lines that we have added and not yet read again
  std::map<std::string, std::string> trouble_;
  std::set<std::string> called_;
  std::multiset<std::string> connected_;        // names
  std::vector<std::thread> threads_;
};

}  // namespace tutti::tools
