// GPUDirect RDMA on the twin of a GPU and a provider of verbs in memory: what is tried, what is found, and why not.
#if __has_include(<infiniband/verbs.h>)
#include <gmock/gmock.h>

#include "tests/cuda/twin_device.h"
#include "tests/transport/rdma_pair.h"
#include "transport/ranges.h"

namespace tutti::tests {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using transport::rdma::Distance;
using transport::rdma::distance_between;
using transport::rdma::GpuWay;

// One rank with a twin, on a host with so many rails.
struct Rank {
  FakeFabric fabric;
  twin::TwinDevice gpu{7};
  std::unique_ptr<PosixLoop> loop = make_posix_loop();
  transport::conformance::End listener{0};
  std::unique_ptr<VerbsTransport> rdma;
  explicit Rank(int rails = 1) {
    for (int rail = 0; rail < rails; ++rail) fabric.add_rail(0, rail);
    fabric.foreign = [this](const std::byte* data, std::size_t bytes) { return gpu.reached_by_devices(data, bytes); };
  }
  const transport::rdma::GpuDirect& find(const RdmaOptions& options = {}) {
    auto made = VerbsTransport::make(fabric.verbs(0), *loop, listener, options);
    TUTTI_CHECK(made.ok());
    rdma = std::move(*made);
    const Status reached = rdma->use_gpu(gpu);
    EXPECT_EQ(reached.ok(), rdma->gpu()->direct()) << reached.text();
    EXPECT_EQ(gpu.pinned_bytes(), 0u);      // what the trials took is given back
    return *rdma->gpu();
  }
};

TEST(GpuDirect, GoesByDmabufWhereItCan) {
  Rank rank(2);
  rank.fabric.takes_foreign = true;
  EXPECT_THAT(rank.find().describe(), ElementsAre("on for a twin of a GPU/fake0, by dma-buf", "on for a twin of a GPU/fake1, by dma-buf"));
  EXPECT_EQ(rank.fabric.dmabufs(), 2u);
  EXPECT_TRUE(rank.rdma->gpu()->direct());
}

TEST(GpuDirect, GoesByPeermemElse) {
  Rank rank;
  rank.gpu.exports_memory = false;
  rank.fabric.takes_foreign = true;
  EXPECT_THAT(rank.find().describe(), ElementsAre("on for a twin of a GPU/fake0, by nvidia_peermem (no dma-buf support in this driver)"));
  EXPECT_EQ(rank.fabric.dmabufs(), 0u);
}

TEST(GpuDirect, IsOffWhereNeitherIsThere) {
  Rank rank;
  rank.gpu.exports_memory = false;
  EXPECT_THAT(rank.find().describe(), ElementsAre(HasSubstr("off for a twin of a GPU/fake0: no dma-buf support in this driver, nvidia_peermem")));
  EXPECT_FALSE(rank.rdma->gpu()->direct());
  EXPECT_EQ(rank.rdma->gpu()->reach(0).way, GpuWay::staged);
}

TEST(GpuDirect, IsOffWhereTheKernelsDriverOrTheLibraryHasNoDmabuf) {
  Rank rank;
  rank.fabric.dmabuf_error = EOPNOTSUPP;
  EXPECT_THAT(rank.find().describe(), ElementsAre(HasSubstr("off for a twin of a GPU/fake0: fake0:1: its driver knows no dma-buf, nvidia_peermem")));
  rank.fabric.dmabuf_error = ENOMEM;
  EXPECT_THAT(rank.find().describe(), ElementsAre(HasSubstr("ibv_reg_dmabuf_mr of 65536 bytes")));
}

// It registers, and what is written is not what arrives.
TEST(GpuDirect, IsOffWhereWhatArrivesIsWrong) {
  Rank rank;
  rank.fabric.takes_foreign = rank.fabric.damages_foreign = true;
  EXPECT_THAT(rank.find().describe(), ElementsAre(testing::AllOf(HasSubstr("off for"), HasSubstr("by dma-buf what the device writes to the GPU's memory is wrong"), HasSubstr("by nvidia_peermem what the device writes"))));
  EXPECT_FALSE(rank.rdma->gpu()->direct());
}

TEST(GpuDirect, IsOffWhereItIsNotAllowed) {
  Rank rank;
  EXPECT_THAT(rank.find({.gpu_distance = "LOC"}).describe(), ElementsAre(HasSubstr("off for a twin of a GPU/fake0: TUTTI_IB_GPU_DISTANCE=LOC")));
  EXPECT_EQ(rank.fabric.dmabufs(), 0u);
}

TEST(GpuDirect, RegistersRangesOfTheGpuOnlyWhereItWorks) {
  for (const bool works : {true, false}) {
    Rank rank;
    rank.gpu.exports_memory = works;
    const auto devices = transport::rdma::Device::open_all(rank.fabric.verbs(0));
    ASSERT_TRUE(devices.at(0)->prepare(false).ok());
    std::vector<ibv_wc> kept;
    const transport::rdma::GpuDirect direct(rank.gpu, devices, Distance::system, kept);
    transport::rdma::RdmaCounters counters;
    transport::rdma::Registrations registrations(devices, counters);
    registrations.use(&direct);
    auto memory = rank.gpu.allocate(1 << 20);
    ASSERT_TRUE(memory.ok());
    EXPECT_FALSE(registrations.find(*memory, 1 << 20));      // nobody says how long it stays
    ASSERT_TRUE(transport::add_range(*memory, 1 << 20, false, true).ok());
    EXPECT_EQ(registrations.find(*memory + 4096, 5000) != nullptr, works);
    EXPECT_TRUE(transport::drop_range(*memory));
    rank.gpu.release(*memory);
  }
}

TEST(GpuDirect, DistancesAreReadFromThePathsOfTheBus) {
  const std::string root = "/sys/devices/pci0000:3a/0000:3a:00.0/", far = "/sys/devices/pci0000:d7/0000:d7:00.0/";
  // One switch: its upstream bridge in common, a downstream one each.
  EXPECT_EQ(distance_between(root + "0000:3b:00.0/0000:3c:08.0/0000:3d:00.0", root + "0000:3b:00.0/0000:3c:10.0/0000:3e:00.0", true), Distance::one_switch);
  // A switch behind a switch.
  EXPECT_EQ(distance_between(root + "0000:3b:00.0/0000:3c:08.0/0000:40:00.0/0000:41:00.0/0000:42:00.0", root + "0000:3b:00.0/0000:3c:10.0/0000:3e:00.0", true), Distance::switches);
  EXPECT_EQ(distance_between("/sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0", "/sys/devices/pci0000:3a/0000:3a:02.0/0000:5e:00.0", true), Distance::processor);
  EXPECT_EQ(distance_between(root + "0000:3b:00.0", far + "0000:d8:00.0", true), Distance::processor);
  EXPECT_EQ(distance_between(root + "0000:3b:00.0", far + "0000:d8:00.0", false), Distance::system);
  EXPECT_EQ(distance_between(root + "0000:3b:00.0", "", false), Distance::unknown);
}

// Of messages into a GPU's memory.
class GpuListener final : public transport::Listener {
 public:
  std::byte* landing(int, const transport::SegmentHeader&) override { return nullptr; }
  void on_segment(int, const transport::SegmentHeader& header, const std::byte* data, transport::Lease lease) override {
    if (header.call == 0) {
      EXPECT_EQ(data, place + header.offset);
      got += header.bytes;
    } else {
      ++refused;
    }
    lease.release();
  }
  void on_sent(int, std::uint64_t) override { ++sent; }
  void on_damaged(int, const transport::SegmentHeader&) override { ADD_FAILURE(); }
  void on_lost(int, const Status& why) override { ADD_FAILURE() << why.text(); }
  std::byte* place = nullptr;
  std::uint64_t got = 0, sent = 0, refused = 0;
};

class GpuPair final : private FakeFabric, public RdmaPair {
 public:
  GpuPair(transport::Listener& a, transport::Listener& b, std::span<twin::TwinDevice* const> gpus, const RdmaOptions& options = {}) {
    foreign = [gpus](const std::byte* data, std::size_t bytes) {
      for (auto* gpu : gpus)
        if (std::byte* at = gpu->reached_by_devices(data, bytes)) return at;
      return static_cast<std::byte*>(nullptr);
    };
    for (int side = 0; side < 2; ++side) add_rail(side, 0);
    make(0, verbs(0), a, options);
    make(1, verbs(1), b, options);
    for (int side = 0; side < 2; ++side) TUTTI_CHECK(rdma(side).use_gpu(*gpus[std::size_t(side)]).ok());
    TUTTI_CHECK(join());
  }
  FakeFabric& fabric() { return *this; }
  std::uint64_t copied() { return rdma(0).counters().copied_out + rdma(1).counters().copied_in; }

 private:
  bool deliver() override { return FakeFabric::deliver(); }
};

// Memory of two GPUs, registered, and what is sent from the one to the other.
struct TwoGpus {
  static constexpr std::uint64_t kBytes = 3000008;
  twin::TwinDevice from_gpu{1}, to_gpu{2};
  twin::TwinDevice* const gpus[2] = {&from_gpu, &to_gpu};
  std::byte* const from = *from_gpu.allocate(kBytes);
  std::byte* const to = *to_gpu.allocate(kBytes);
  std::vector<std::byte> bytes = std::vector<std::byte>(kBytes);
  GpuListener a, b;
  TwoGpus() {
    b.place = to;
    EXPECT_TRUE(transport::add_range(from, kBytes, false, true).ok() && transport::add_range(to, kBytes, false, true).ok());
  }
  ~TwoGpus() { EXPECT_TRUE(transport::drop_range(from) && transport::drop_range(to)); }
  // A message of other bytes.
  void begin(GpuPair& pair, std::uint32_t operation) {
    message = {.key = {1, operation, 0}, .message_bytes = kBytes};
    transport::conformance::Content(0, message.key).fill(bytes);
    from_gpu.write(from, bytes);
    offset = b.got = 0;
    pair.connection(1).expect(message, transport::Readiness::lands, to);
  }
  // Until so much has arrived.
  bool move(GpuPair& pair, std::uint64_t until) {
    for (int idle = 0; b.got < until && idle < 100000; ++idle) {
      transport::SegmentHeader segment = message;
      segment.offset = offset;
      segment.bytes = std::uint32_t(std::min<std::uint64_t>(pair.transport(0).segment_bytes(kBytes), kBytes - offset));
      if (segment.bytes && pair.connection(0).send(segment, from + offset, 1) != transport::Sent::again) offset += segment.bytes;
      pair.step();
    }
    return b.got >= until;
  }
  bool right() { return to_gpu.read(to, kBytes) == bytes; }
  transport::SegmentHeader message;
  std::uint64_t offset = 0;
};

TEST(GpuDirect, AMessageGoesFromOneGpuToTheOther) {
  TwoGpus two;
  GpuPair pair(two.a, two.b, two.gpus);
  two.begin(pair, 1);
  ASSERT_TRUE(two.move(pair, two.kBytes));
  EXPECT_EQ(pair.copied(), 0u);
  EXPECT_TRUE(two.right());
}

// No rail is left in the middle of a message: the rest goes over a socket, which reaches no GPU, and later ones by the device again.
TEST(GpuDirect, ASocketTakesOver) {
  TwoGpus two;
  GpuPair pair(two.a, two.b, two.gpus, {.resumable = true, .socket_after = Nanoseconds(0)});
  two.begin(pair, 1);
  ASSERT_TRUE(two.move(pair, two.kBytes / 4));
  pair.fabric().set_port(0, false);
  ASSERT_TRUE(pair.join(true)) << pair.why_not().text();
  EXPECT_THAT(pair.connection(0).describe(), HasSubstr("over a socket"));
  EXPECT_EQ(pair.rdma(0).counters().over_sockets, 1u);
  const std::uint64_t before = two.b.got;
  ASSERT_LT(before, two.kBytes);
  ASSERT_TRUE(two.move(pair, two.kBytes));
  EXPECT_TRUE(two.right());
  EXPECT_GE(pair.copied(), 2 * (two.kBytes - before));
  two.begin(pair, 2);
  ASSERT_TRUE(two.move(pair, two.kBytes));
  EXPECT_TRUE(two.right());

  pair.fabric().set_port(0, true);
  ASSERT_TRUE(pair.join(true)) << pair.why_not().text();
  const std::uint64_t copied = pair.copied();
  two.begin(pair, 3);
  ASSERT_TRUE(two.move(pair, two.kBytes));
  EXPECT_EQ(pair.copied(), copied);
  EXPECT_TRUE(two.right());
}

// What the receiver has granted is of another call: the sender says so, and does not read the GPU's memory for it.
TEST(GpuDirect, AMessageOfAnotherCallIsRefused) {
  TwoGpus two;
  GpuPair pair(two.a, two.b, two.gpus);
  two.begin(pair, 1);
  transport::SegmentHeader other = two.message;
  other.call = 7;
  other.bytes = 100000;
  transport::Sent sent = transport::Sent::again;
  for (int i = 0; i < 1000 && two.b.refused == 0; ++i) {
    if (sent == transport::Sent::again) sent = pair.connection(0).send(other, two.from, 1);
    pair.step();
  }
  EXPECT_EQ(two.b.refused, 1u);
  EXPECT_EQ(two.b.got, 0u);
}

}  // namespace
}  // namespace tutti::tests
#endif
