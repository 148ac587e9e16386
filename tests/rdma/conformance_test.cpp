// The conformance suite over the kernel's own verbs: rxe0 and rxe1 of the emulated machine, and both rails of it.
#include "tests/rdma/soft_pair.h"

namespace tutti::tests {
namespace {

using transport::Listener;
using transport::conformance::Pair;

std::unique_ptr<Pair> one_rail(Listener& a, Listener& b) { return std::make_unique<SoftPair>(a, b, RdmaOptions{}, false); }
std::unique_ptr<Pair> two_rails(Listener& a, Listener& b) { return std::make_unique<SoftPair>(a, b, RdmaOptions{.queues = 2}, true); }

TUTTI_TRANSPORT_CONFORMANCE(SoftRdma, one_rail)
TUTTI_TRANSPORT_CONFORMANCE(SoftRdmaTwoRails, two_rails)

}  // namespace
}  // namespace tutti::tests
