// In place of the rest of this room where <infiniband/verbs.h> was not there to build with.
#include "transport/rdma/rdma_transport.h"

namespace tutti::transport {

Result<std::unique_ptr<RdmaTransport>> RdmaTransport::make(Loop&, Listener&, const rdma::RdmaOptions&) {
  return Status(Code::unsupported, "tutti was built without libibverbs' headers (Debian's libibverbs-dev)");
}

}  // namespace tutti::transport
