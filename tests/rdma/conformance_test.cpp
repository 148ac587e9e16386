// The conformance suite over the kernel's own verbs: rxe0 and rxe1 of the emulated machine, and both rails of it.
#include <string>

#include "tests/transport/rdma_pair.h"

namespace tutti::tests {
namespace {

using transport::Listener;
using transport::conformance::Pair;

class SoftPair final : public RdmaPair {
 public:
  SoftPair(Listener& a, Listener& b, RdmaOptions options, bool both_rails) {
    const auto verbs = transport::rdma::load_verbs();
    TUTTI_CHECK(verbs.ok());
    options.devices = both_rails ? "rxe0,rxe2" : "rxe0";
    make(0, **verbs, a, options);
    options.devices = both_rails ? "rxe1,rxe3" : "rxe1";
    make(1, **verbs, b, options);
    TUTTI_CHECK(join());
  }

 private:
  Nanoseconds patience() const override { return std::chrono::milliseconds(5); }
};

std::unique_ptr<Pair> one_rail(Listener& a, Listener& b) { return std::make_unique<SoftPair>(a, b, RdmaOptions{}, false); }
std::unique_ptr<Pair> two_rails(Listener& a, Listener& b) { return std::make_unique<SoftPair>(a, b, RdmaOptions{.queues = 2}, true); }

TUTTI_TRANSPORT_CONFORMANCE(SoftRdma, one_rail)
TUTTI_TRANSPORT_CONFORMANCE(SoftRdmaTwoRails, two_rails)

}  // namespace
}  // namespace tutti::tests
