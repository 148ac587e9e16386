// The CUDA kernels from the naive one to the library's, on the GPU that is current: each rung is compared with the
// host's kernel, bit for bit, before it is timed. Figures are bytes read and written per second, beside the share of
// what a copy inside the GPU moves. Ends with 1 when a rung is wrong, or the last one moves less than kLeastShare.
//   cuda_ladder [BYTES]
#include <kernels/cast.h>
#include <kernels/cuda/cuda_device.h>
#include <kernels/kernels.h>
#include <perf/kernels/cuda_rungs.h>
#include <kernels/cuda/launch.cuh>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

namespace tutti::kernels::cuda {
namespace {

constexpr double kLeastShare = 0.85;
constexpr std::size_t kCompared = 1 << 20;  // bytes of each input that the host adds, too
constexpr int kRounds = 9;

void must(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "%s: CUDA says %s (%s)\n", what, cudaGetErrorString(error), cudaGetErrorName(error));
  std::exit(2);
}
void must(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.to_string().c_str());
  std::exit(2);
}

struct Memory {
  explicit Memory(std::size_t bytes) { must(cudaMalloc(&at, bytes), "device memory"); }
  ~Memory() { cudaFree(at); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::byte* bytes() const { return static_cast<std::byte*>(at); }
  void* at = nullptr;
};

std::vector<std::byte> drawn(std::size_t bytes, unsigned seed) {
  std::mt19937_64 random(seed);
  std::vector<std::byte> result(bytes);
  for (std::byte& b : result) b = std::byte(random() & 0x3f);  // no exponent that is large, no NaN
  return result;
}

class Ladder {
 public:
  explicit Ladder(std::size_t bytes) : bytes_(bytes / 4096 * 4096) {
    auto device = open_device();
    must(device.status());
    device_ = *device;
    must(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "a stream");
    must(cudaEventCreate(&begin_), "an event");
    must(cudaEventCreate(&end_), "an event");
    int ordinal = 0;
    must(cudaGetDevice(&ordinal), "the device");
    must(cudaDeviceGetAttribute(&processors_, cudaDevAttrMultiProcessorCount, ordinal), "the processors");
    for (unsigned k = 0; k < kPassInputs; ++k) {
      inputs_.push_back(std::make_unique<Memory>(bytes_));
      host_.push_back(drawn(std::min(bytes_, kCompared), k));
      for (std::size_t at = 0; at < bytes_; at += host_[k].size())
        must(cudaMemcpy(inputs_[k]->bytes() + at, host_[k].data(), std::min(host_[k].size(), bytes_ - at),
                        cudaMemcpyHostToDevice),
             "inputs");
    }
    out_ = std::make_unique<Memory>(2 * bytes_);
    copy_ = 2.0 * double(bytes_) /
            seconds_of([&] { must(device_->copy(stream_, out_->bytes(), inputs_[0]->bytes(), {bytes_})); });
    std::printf("%s, %zu bytes an input; a copy moves %.0f GB/s\n", device_->describe().c_str(), bytes_, copy_ / 1e9);
  }

  template <DataType kType, int kInputs>
  void reduce() {
    const std::size_t count = bytes_ / size_of(kType), compared = host_[0].size() / size_of(kType);
    ReduceArguments a;
    a.out = out_->bytes(), a.n = kInputs, a.count = count;
    DeviceReduction best;
    best.type = kType, best.out = a.out, best.n = kInputs, best.count = count;
    std::vector<const std::byte*> from;
    for (int k = 0; k < kInputs; ++k) {
      best.inputs[k] = a.inputs[k] = inputs_[std::size_t(k)]->bytes();
      from.push_back(host_[std::size_t(k)].data());
    }
    expected_.resize(compared * size_of(kType));
    kernels::reduce(kType, ReduceOp::sum, expected_.data(), from, compared);
    const std::string name = std::string("reduce ") + std::string(name_of(kType)) + " of " + std::to_string(kInputs);
    const double moved = double(kInputs + 1) * double(bytes_);
    const int many = int((count + kThreads - 1) / kThreads);
    rung(name, "naive", moved,
         [&] { must(cudaError_t(launch<NaiveReduce<kType, kSum, kInputs>>(many, stream_, &a)), "a launch"); });
    rung(name, "strided", moved, [&] {
      must(cudaError_t(launch<StridedReduce<kType, kSum, kInputs>>(8 * processors_, stream_, &a)), "a launch");
    });
    rung(name, "packed", moved, [&] {
      must(cudaError_t(launch<PackedReduce<kType, kSum, kInputs>>(8 * processors_, stream_, &a)), "a launch");
    });
    rung(
        name, "library", moved, [&] { must(device_->reduce(stream_, best)); }, true);
  }

  template <DataType kFrom, DataType kTo>
  void cast() {
    const std::size_t count = bytes_ / std::max(size_of(kFrom), size_of(kTo)),
                      compared = host_[0].size() / size_of(kFrom);
    const CastArguments a{out_->bytes(), inputs_[0]->bytes(), count};
    expected_.resize(std::min(compared, count) * size_of(kTo));
    kernels::cast(kTo, expected_.data(), kFrom, host_[0].data(), std::min(compared, count));
    const std::string name = std::string(kFrom == kTo ? "copy " : "cast ") + std::string(name_of(kFrom)) + " to " +
                             std::string(name_of(kTo));
    const double moved = double(count) * double(size_of(kFrom) + size_of(kTo));
    const int many = int((count + kThreads - 1) / kThreads);
    rung(name, "naive", moved,
         [&] { must(cudaError_t(launch<NaiveCast<kFrom, kTo>>(many, stream_, &a)), "a launch"); });
    rung(name, "strided", moved,
         [&] { must(cudaError_t(launch<StridedCast<kFrom, kTo>>(8 * processors_, stream_, &a)), "a launch"); });
    rung(
        name, "library", moved, [&] { must(device_->cast(stream_, kTo, a.out, kFrom, a.in, count)); }, true);
  }

  bool good() const { return good_; }

 private:
  // The median, after one to warm up.
  double seconds_of(const std::function<void()>& body) {
    std::vector<double> seconds;
    for (int round = 0; round < kRounds; ++round) {
      must(cudaEventRecord(begin_, stream_), "an event");
      body();
      must(cudaEventRecord(end_, stream_), "an event");
      must(cudaEventSynchronize(end_), "a kernel");
      float milliseconds = 0;
      must(cudaEventElapsedTime(&milliseconds, begin_, end_), "a time");
      if (round > 0) seconds.push_back(milliseconds / 1e3);
    }
    std::nth_element(seconds.begin(), seconds.begin() + kRounds / 2, seconds.end());
    return seconds[kRounds / 2];
  }
  void rung(const std::string& kernel, const char* name, double moved, const std::function<void()>& body,
            bool last = false) {
    must(cudaMemsetAsync(out_->at, 0xa5, expected_.size(), stream_), "the output");
    const double share = moved / seconds_of(body) / copy_;
    std::vector<std::byte> got(expected_.size());
    must(cudaMemcpy(got.data(), out_->at, got.size(), cudaMemcpyDeviceToHost), "the output");
    const bool same = got == expected_, fast = !last || share >= kLeastShare;
    good_ = good_ && same && fast;
    std::printf("%-24s %-8s %6.0f GB/s  %.2f of a copy%s%s\n", kernel.c_str(), name, share * copy_ / 1e9, share,
                same ? "" : "  WRONG: other bits than the host's", fast ? "" : "  SLOW: less than 0.85");
  }

  std::size_t bytes_;
  std::shared_ptr<Device> device_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  int processors_ = 1;
  std::vector<std::unique_ptr<Memory>> inputs_;
  std::vector<std::vector<std::byte>> host_;
  std::unique_ptr<Memory> out_;
  std::vector<std::byte> expected_;
  double copy_ = 1;
  bool good_ = true;
};

template <DataType... kTypes>
void reduce_all(Ladder& ladder) {
  (ladder.reduce<kTypes, 2>(), ...);
  (ladder.reduce<kTypes, 4>(), ...);
}

}  // namespace
}  // namespace tutti::kernels::cuda

int main(int count, char** arguments) {
  using namespace tutti;
  const std::size_t bytes = count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 256 << 20;
  if (bytes < 4096) return std::fprintf(stderr, "BYTES is %s, wanted at least 4096\n", arguments[1]), 2;
  kernels::cuda::Ladder ladder(bytes);
  kernels::cuda::reduce_all<DataType::f32, DataType::f64, DataType::f16, DataType::bf16, DataType::f8e4m3,
                            DataType::f8e5m2, DataType::i32, DataType::i8>(ladder);
  ladder.cast<DataType::u8, DataType::u8>();
  ladder.cast<DataType::f32, DataType::bf16>();
  ladder.cast<DataType::bf16, DataType::f32>();
  ladder.cast<DataType::f32, DataType::f16>();
  ladder.cast<DataType::f32, DataType::f8e4m3>();
  return ladder.good() ? 0 : 1;
}
