#pragma once
// Where other processes knock: listens on addresses, shakes hands, and hands on those who belong to the job. Strangers
// are dropped, counted, and cost nothing else. It does not know what the connections are for.
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "comm/handshake.h"

namespace tutti::comm {

class Reception {
 public:
  // From Loop::run; may destroy the Reception.
  using OnPeer = std::function<void(const PeerHello&, std::unique_ptr<Stream>)>;
  Reception(Loop& loop, const JobKey& key, int own_rank, OnPeer on_peer);
  Reception(const Reception&) = delete;
  Reception& operator=(const Reception&) = delete;

  // May be called for several addresses. network, invalid_argument.
  Status listen(const std::string& address);
  std::vector<std::string> addresses() const;
  int port() const;  // of the first TCP address; 0 when there is none
  int strangers() const { return strangers_; }
  const std::string& last_stranger() const { return last_stranger_; }  // why the last one was dropped

 private:
  struct Peer {
    PeerHello hello;
    std::unique_ptr<Stream> stream;
  };
  void accept(std::unique_ptr<Stream> stream);
  Task<void> greet(std::unique_ptr<Stream> stream);
  void deliver();

  Loop& loop_;
  const JobKey key_;
  const int own_rank_;
  std::shared_ptr<OnPeer> on_peer_;
  std::vector<std::unique_ptr<Acceptor>> acceptors_;
  std::deque<Peer> greeted_;
  std::shared_ptr<void> delivery_;
  int strangers_ = 0;
  std::string last_stranger_;
  int greeting_ = 0;
  TaskSet greetings_;  // dies first
};

}  // namespace tutti::comm
