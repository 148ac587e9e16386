#pragma once
// Metrics (TUTTI_METRICS): serves what an engine counts as Prometheus text (exposition format 0.0.4) to whoever
// connects on this host. One request a connection, over HTTP/1.0; it reads no more of one than its first kilobyte. From
// the loop's thread.
#include <functional>
#include <list>
#include <memory>
#include <string>

#include "core/net.h"

namespace tutti::comm {

class Metrics {
 public:
  // `where`: "9400" (a port of 127.0.0.1; `local_rank` is added) or "@name" ("-RANK" is appended). Where it cannot
  // listen, status() says why. `text` is asked for each request.
  Metrics(Loop& loop, const std::string& where, int rank, int local_rank, std::function<std::string()> text);
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;
  const std::string& address() const { return address_; }
  const Status& status() const { return status_; }        // of listening

 private:
  static constexpr std::size_t kMostVisitors = 16;
  struct Visitor {
    std::unique_ptr<Stream> stream;
    std::string request, answer;
    std::shared_ptr<void> limit;
  };
  void enter(std::unique_ptr<Stream> stream);
  void hear(Visitor& visitor);
  void say(Visitor& visitor);
  void leave(Visitor& visitor);

  Loop& loop_;
  std::function<std::string()> text_;
  std::string address_;
  Status status_;
  std::list<Visitor> visitors_;
  std::unique_ptr<Acceptor> acceptor_;
};

// One counter or gauge with its explanation; `labels` without braces: rank="0".
std::string metric(const char* name, const char* kind, const char* help, const std::string& labels, double value);
// Its two parts, for several with one explanation.
std::string metric_head(const char* name, const char* kind, const char* help);
std::string sample(const char* name, const std::string& labels, double value);

}  // namespace tutti::comm
