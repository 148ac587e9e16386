#pragma once
// Ranks of a communicator as threads with twins of a GPU, and numbers for them: each rank's are drawn from its rank and a seed.
#include <gtest/gtest.h>
#include <tests/cuda/twin_device.h>
#include <tutti/tutti.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <thread>

#include <comm/join.h>
#include <comm/member.h>

namespace tutti::twin {

using Values = std::vector<std::int64_t>;

inline constexpr std::size_t kSliceOfI64 = comm::Relay::kSlotBytes / sizeof(std::int64_t);

struct Rank {
  Communicator comm;
  std::shared_ptr<TwinDevice> gpu;
  StreamHandle stream;
  int rank, count;

  std::int64_t* make(std::size_t n) {
    return reinterpret_cast<std::int64_t*>(*gpu->allocate(std::max<std::size_t>(n, 1) * 8));
  }
  std::int64_t* make(const Values& values) {
    std::int64_t* const at = make(values.size());
    gpu->write(reinterpret_cast<std::byte*>(at), std::as_bytes(std::span(values)));
    return at;
  }
  Values read(const std::int64_t* at, std::size_t n) {
    const auto bytes = gpu->read(reinterpret_cast<const std::byte*>(at), n * 8);
    Values values(n);
    if (n) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  // After what the stream does now.
  Values result(const std::int64_t* at, std::size_t n) {
    EXPECT_TRUE(gpu->has_run(stream));
    return read(at, n);
  }
};

// out = 2 * in, by the GPU.
inline DeviceReduction twice_of(const std::int64_t* in, std::int64_t* out, std::size_t n) {
  DeviceReduction twice;
  twice.type = DataType::i64;
  twice.out = reinterpret_cast<std::byte*>(out);
  twice.inputs[0] = twice.inputs[1] = reinterpret_cast<const std::byte*>(in);
  twice.n = 2;
  twice.count = n;
  return twice;
}

// What rank r holds in round k.
inline Values drawn(int rank, std::size_t n, std::uint64_t seed) {
  std::uint64_t state = seed * 1000003 + std::uint64_t(rank);
  Values values(n);
  for (auto& v : values) {  // splitmix64's steps: megabytes of them are wanted
    std::uint64_t x = state += 0x9e3779b97f4a7c15;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    v = std::int64_t((x ^ x >> 27) >> 20);
  }
  return values;
}
inline Values sum_of(int ranks, std::size_t n, std::uint64_t seed) {
  Values sum(n);
  for (int r = 0; r < ranks; ++r) {
    const Values one = drawn(r, n, seed);
    for (std::size_t i = 0; i < n; ++i) sum[i] += one[i];
  }
  return sum;
}
inline Values part(const Values& of, std::size_t block, std::size_t n) {
  return {of.begin() + std::ptrdiff_t(block * n), of.begin() + std::ptrdiff_t((block + 1) * n)};
}

inline Options options() {
  Options given;
  given.job_key = "twin";
  return given;
}

// Ranks as threads, each with a GPU of its own or all with one.
inline void ranks(int count, std::uint64_t seed, const std::function<void(Rank&)>& body, bool one_gpu = false) {
  const auto id = Communicator::make_unique_id();
  ASSERT_TRUE(id.ok()) << id.status().to_string();
  std::vector<std::shared_ptr<TwinDevice>> gpus;  // outlive all that their streams do
  for (int r = 0; r < count; ++r)
    gpus.push_back(one_gpu && r > 0 ? gpus[0] : std::make_shared<TwinDevice>(seed * 100 + std::uint64_t(r)));
  std::vector<std::thread> threads;
  for (int r = 0; r < count; ++r)
    threads.emplace_back([&, r] {
      auto member = comm::join_by_id(r, count, *id, options());
      ASSERT_TRUE(member.ok()) << member.status().to_string();
      const auto gpu = gpus[std::size_t(r)];
      (*member)->use_device(gpu);
      Rank rank{comm::Member::handle(std::move(*member)), gpu, gpu->make_stream(), r, count};
      body(rank);
    });
  for (auto& thread : threads) thread.join();
  for (const auto& gpu : gpus) {
    EXPECT_TRUE(gpu->has_run());
    EXPECT_EQ(gpu->open_streams(), 0u);
  }
}

inline constexpr DataType kType = DataType::i64;

}  // namespace tutti::twin
