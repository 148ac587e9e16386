#include "tests/gpu/gpu.h"

#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include <kernels/cuda/cuda_device.h>

namespace tutti::gpu {
namespace {

void must(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  fmt::print(stderr, "{}: CUDA says {} ({})\n", what, cudaGetErrorString(error), cudaGetErrorName(error));
  std::exit(1);
}
cudaStream_t of(StreamHandle handle) { return static_cast<cudaStream_t>(handle); }

struct Spare {
  std::mutex mutex;
  std::multimap<std::size_t, std::byte*> blocks;
};
Spare& spare() {
  static Spare& all = *new Spare;
  return all;
}

}  // namespace

std::shared_ptr<Device> device(std::string* why) {
  auto opened = kernels::cuda::open_device();
  if (opened.ok()) return *opened;
  if (why) *why = opened.status().text();
  return nullptr;
}

Stream::Stream() {
  cudaStream_t stream = nullptr;
  must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
  handle_ = stream;
}
Stream::~Stream() { cudaStreamDestroy(of(handle_)); }
void Stream::synchronize() const { must(cudaStreamSynchronize(of(handle_)), "waiting for a stream"); }

Memory::Memory(std::size_t bytes) : bytes_(std::bit_ceil(std::max<std::size_t>(bytes, 256))) {
  {
    const std::lock_guard held(spare().mutex);
    if (const auto at = spare().blocks.find(bytes_); at != spare().blocks.end()) at_ = spare().blocks.extract(at).mapped();
  }
  if (at_) return;
  void* fresh = nullptr;
  must(cudaMalloc(&fresh, bytes_), "device memory");
  at_ = static_cast<std::byte*>(fresh);
}
Memory::Memory(std::span<const std::byte> from) : Memory(from.size()) {
  must(cudaMemcpy(at_, from.data(), from.size(), cudaMemcpyHostToDevice), "a copy to the device");
}
Memory::~Memory() {
  const std::lock_guard held(spare().mutex);
  spare().blocks.emplace(bytes_, at_);
}
std::vector<std::byte> Memory::read_as_is(std::size_t bytes) const {
  const Stream own;
  std::vector<std::byte> values(bytes);
  must(cudaMemcpyAsync(values.data(), at_, bytes, cudaMemcpyDeviceToHost, of(own.handle())), "a copy from the device");
  own.synchronize();
  return values;
}
std::vector<std::byte> Memory::read(std::size_t bytes) const {
  must(cudaDeviceSynchronize(), "waiting for the device");
  std::vector<std::byte> values(bytes);
  must(cudaMemcpy(values.data(), at_, bytes, cudaMemcpyDeviceToHost), "a copy from the device");
  return values;
}

double seconds_of(const Stream& stream, const std::function<void()>& body) {
  cudaEvent_t begin = nullptr, end = nullptr;
  must(cudaEventCreate(&begin), "an event");
  must(cudaEventCreate(&end), "an event");
  std::vector<double> seconds;
  for (int round = 0; round < 8; ++round) {
    must(cudaEventRecord(begin, of(stream.handle())), "an event");
    body();
    must(cudaEventRecord(end, of(stream.handle())), "an event");
    must(cudaEventSynchronize(end), "a kernel");
    float milliseconds = 0;
    must(cudaEventElapsedTime(&milliseconds, begin, end), "a time");
    if (round > 0) seconds.push_back(milliseconds / 1e3);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  std::nth_element(seconds.begin(), seconds.begin() + 3, seconds.end());
  return seconds[3];
}

void* pinned(std::size_t bytes) {
  void* at = nullptr;
  must(cudaHostAlloc(&at, bytes, cudaHostAllocPortable | cudaHostAllocMapped), "pinned memory");
  std::memset(at, 0, bytes);
  return at;
}

}  // namespace tutti::gpu
