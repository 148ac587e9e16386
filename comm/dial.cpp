#include "comm/dial.h"

#include <fmt/format.h>

#include <algorithm>

#include "comm/tls_stream.h"

namespace tutti::comm {
namespace {

using Answers = Channel<Result<Dialled>>;

Task<void> try_one(Loop& loop, const std::string& address, const JobKey& key, PeerHello own, TimePoint deadline,
                   bool& taken, Answers& answers) {
  auto connecting = connect(loop, address, deadline);
  auto stream = co_await connecting;
  if (!stream) {
    answers.push(stream.status());
    co_return;
  }
  ChannelTerms terms;
  auto shaking = handshake_connect(loop, **stream, key, own, deadline, &taken, &terms);
  auto peer = co_await shaking;
  if (!peer) {
    answers.push(peer.status());
    co_return;
  }
  if (terms.encrypt && !is_unix(**stream)) {
    auto securing = secure(loop, std::move(*stream), terms.secret, TlsRole::client, deadline);
    stream = co_await securing;
    if (!stream) {
      answers.push(stream.status());
      co_return;
    }
  }
  answers.push(Dialled{std::move(*stream), *peer});
}

}  // namespace

Task<Result<Dialled>> dial(Loop& loop, const std::vector<std::string>& candidates, const JobKey& key, PeerHello own,
                           TimePoint deadline) {
  Answers answers(loop);
  bool taken = false;
  TaskSet attempts;  // dies first: what is still under way then is dropped
  Status worst(Code::network, "there is no address to connect to");
  std::size_t begun = 0, failed = 0;
  while (failed < candidates.size()) {
    if (begun < candidates.size() && loop.now() < deadline)
      attempts.spawn(try_one(loop, candidates[begun++], key, own, deadline, taken, answers));
    TimePoint patience = begun < candidates.size() ? std::min(deadline, loop.now() + kNextCandidateAfter) : deadline;
    auto popping = answers.pop(patience);
    auto answer = co_await popping;
    if (!answer && loop.now() >= deadline)
      co_return failed > 0 ? worst
                           : Status(Code::timeout, fmt::format("connect to {}: no answer in time", candidates[0]));
    if (!answer) continue;
    if (*answer) co_return std::move(*answer);
    ++failed;
    if (answer->status().code() == Code::aborted) continue;   // made way for one that may yet fail
    if (failed == 1 || answer->status().code() != Code::network || worst.code() == Code::network)
      worst = answer->status();
  }
  co_return worst;
}

}  // namespace tutti::comm
