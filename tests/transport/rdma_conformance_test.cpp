// The conformance suite over RDMA, on a provider of verbs in memory: one queue pair, several rails and queue pairs, hardly any memory.
#if __has_include(<infiniband/verbs.h>)
#include "rdma_pair.h"

namespace tutti::tests {
namespace {

using transport::Listener;
using transport::conformance::Pair;

std::unique_ptr<Pair> plain(Listener& a, Listener& b) { return std::make_unique<FakeRdmaPair>(a, b, RdmaOptions{}); }
std::unique_ptr<Pair> two_rails(Listener& a, Listener& b) { return std::make_unique<FakeRdmaPair>(a, b, RdmaOptions{.queues = 2}, 2); }
std::unique_ptr<Pair> short_segments(Listener& a, Listener& b) { return std::make_unique<FakeRdmaPair>(a, b, RdmaOptions{.segment_bytes = 1000}); }
std::unique_ptr<Pair> tight(Listener& a, Listener& b) {
  return std::make_unique<FakeRdmaPair>(a, b, RdmaOptions{.queues = 2, .segment_bytes = 16 << 10, .landing_bytes = 40 << 10, .staging_bytes = 16 << 10});
}

std::unique_ptr<Pair> cut_otherwise(Listener& a, Listener& b) {
  auto pair = tight(a, b);
  pair->cuts_otherwise = true;
  return pair;
}

TUTTI_TRANSPORT_CONFORMANCE(Rdma, plain)
TUTTI_TRANSPORT_CONFORMANCE(RdmaTwoRails, two_rails)
TUTTI_TRANSPORT_CONFORMANCE(RdmaShortSegments, short_segments)
TUTTI_TRANSPORT_CONFORMANCE(RdmaTight, tight)
TUTTI_TRANSPORT_CONFORMANCE(RdmaCutOtherwise, cut_otherwise)

}  // namespace
}  // namespace tutti::tests
#endif
