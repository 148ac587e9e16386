// Where folding begins: 2,048 ranks in full and folded. Minutes and 2 GB, so only with ./dev test --long.
#include "tests/comm/simulated.h"

namespace tutti::comm::test {
namespace {

TEST(Long, AFoldIsTheWholeAt2048) {
  for (const int host : {0, 8}) {
    expect_fold("ring", Collective::all_reduce, 2048, host, 16 << 20);
    expect_fold("two_shot", Collective::all_reduce, 2048, host, 16 << 20);
    expect_fold("direct", Collective::all_reduce, 2048, host, 16 << 20);
    expect_fold("direct", Collective::all_to_all, 2048, host, 16 << 20);
  }
}

}  // namespace
}  // namespace tutti::comm::test
