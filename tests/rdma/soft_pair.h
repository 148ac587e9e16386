#pragma once
// Two ranks of this process over the kernel's own verbs: rxe0 and rxe1 of the emulated machine, or both rails of it.
#include "tests/transport/rdma_pair.h"

namespace tutti::tests {

class SoftPair final : public RdmaPair {
 public:
  SoftPair(transport::Listener& a, transport::Listener& b, RdmaOptions options, bool both_rails) {
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

}  // namespace tutti::tests
