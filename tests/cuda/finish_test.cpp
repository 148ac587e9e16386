// finish() on a twin's stream, which goes on or stands still.
#include <gtest/gtest.h>
#include <tests/cuda/twin_device.h>

#include <core/finish.h>

namespace tutti::twin {
namespace {

using namespace std::chrono_literals;

TEST(Finish, WaitsForWhatIsEnqueued) {
  TwinDevice gpu(1);
  const StreamHandle stream = gpu.make_stream();
  std::byte *const memory = *gpu.allocate(8), *const pinned = *gpu.allocate_pinned(8);
  for (int k = 1; k <= 20; ++k) {
    pinned[0] = std::byte(k);
    ASSERT_TRUE(gpu.copy(stream, memory, pinned, {8}).ok());
    ASSERT_TRUE(finish(gpu, stream, 1min).ok());
    EXPECT_EQ(gpu.read(memory, 1)[0], std::byte(k));
  }
}

// What it has put on the stream may run long after it.
TEST(Finish, GivesUpOnAStreamThatStandsStill) {
  TwinDevice gpu(2);
  const StreamHandle stream = gpu.make_stream();
  gpu.hold(stream, true);
  const Status status = finish(gpu, stream, 1ms);
  EXPECT_EQ(status.code(), Code::timeout);
  EXPECT_EQ(status.text(), "copies of a twin of a GPU have not ended within 0.001 s");
  gpu.hold(stream, false);
  EXPECT_TRUE(gpu.has_run(stream));
}

TEST(Finish, SaysWhatTheStreamRefuses) {
  TwinDevice gpu(3);
  gpu.refuses_after = 0;
  EXPECT_EQ(finish(gpu, gpu.make_stream(), 1min).code(), Code::out_of_resources);
}

}  // namespace
}  // namespace tutti::twin
