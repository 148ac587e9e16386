#include "trainer/cuda/cuda_backend.h"

#include <fmt/format.h>

#include "trainer/failure.h"

#if defined(TUTTI_HAS_CUDA)
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "trainer/cuda/kernel_backend.h"

namespace tutti::trainer::cuda {
namespace {

constexpr std::size_t kWorkspace = 32u << 20;       // of cuBLASLt
constexpr std::size_t kMostAlignment = 256;         // that cuBLASLt makes use of
constexpr std::size_t kBlocksOfAProcessor = 8;      // of kThreads: 2048 threads, as many as one runs at once

void must(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  const Code code = error == cudaErrorMemoryAllocation ? Code::out_of_resources : Code::internal;
  throw Failure(Status(code, fmt::format("{}: CUDA says {} ({})", what, cudaGetErrorString(error), cudaGetErrorName(error))));
}

// cuBLASLt, loaded where a GPU is wanted: it is half a gigabyte, which every process would pay for at its start.
class Blas {
 public:
  Blas() {
    const std::string name = fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR);
    library_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library_) library_ = dlopen(TUTTI_CUBLASLT, RTLD_NOW | RTLD_LOCAL);
    if (!library_) throw Failure(Status(Code::unsupported, fmt::format("--device cuda needs {}: {}", name, dlerror())));
    find(create, "cublasLtCreate"), find(destroy, "cublasLtDestroy"), find(version, "cublasLtGetVersion");
    find(status_name, "cublasLtGetStatusName"), find(matmul, "cublasLtMatmul"), find(heuristic, "cublasLtMatmulAlgoGetHeuristic");
    find(product_create, "cublasLtMatmulDescCreate"), find(product_destroy, "cublasLtMatmulDescDestroy");
    find(product_set, "cublasLtMatmulDescSetAttribute"), find(layout_create, "cublasLtMatrixLayoutCreate");
    find(layout_destroy, "cublasLtMatrixLayoutDestroy"), find(preference_create, "cublasLtMatmulPreferenceCreate");
    find(preference_destroy, "cublasLtMatmulPreferenceDestroy"), find(preference_set, "cublasLtMatmulPreferenceSetAttribute");
  }
  void must(cublasStatus_t status, const char* what) const {
    if (status != CUBLAS_STATUS_SUCCESS) throw Failure(Status(Code::internal, fmt::format("{}: cuBLASLt says {}", what, status_name(status))));
  }
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtGetVersion) version;
  decltype(&cublasLtGetStatusName) status_name;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&cublasLtMatmulDescCreate) product_create;
  decltype(&cublasLtMatmulDescDestroy) product_destroy;
  decltype(&cublasLtMatmulDescSetAttribute) product_set;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;

 private:
  template <class F>
  void find(F& function, const char* name) {
    function = reinterpret_cast<F>(dlsym(library_, name));
    if (!function) throw Failure(Status(Code::unsupported, fmt::format("--device cuda: this cuBLASLt has no {}", name)));
  }
  void* library_ = nullptr;       // stays loaded
};
const Blas& blas() {
  static const Blas loaded;
  return loaded;
}

struct Event {
  explicit Event(unsigned flags) { must(cudaEventCreateWithFlags(&event, flags), "an event"); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() { cudaEventDestroy(event); }
  cudaEvent_t event = nullptr;
};

// A power of two that divides the address.
std::size_t alignment_of(const void* at) {
  const auto address = reinterpret_cast<std::uintptr_t>(at);
  return std::min<std::size_t>(kMostAlignment, address & (~address + 1));
}

cudaDataType_t type_of(Precision precision) {
  return precision == Precision::bf16 ? CUDA_R_16BF : precision == Precision::f16 ? CUDA_R_16F : CUDA_R_32F;
}

// cuBLASLt's choice for products of one shape. Its matrices are column-major: c transposed = b transposed times a transposed.
class ProductPlan {
 public:
  ProductPlan(cublasLtHandle_t handle, const Product& p, std::array<std::size_t, 3> alignments) {
    blas().must(blas().product_create(&product_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "a product");
    set(CUBLASLT_MATMUL_DESC_TRANSA, p.form_b);
    set(CUBLASLT_MATMUL_DESC_TRANSB, p.form_a);
    layout(left_, type_of(p.precision), p.n, p.k, p.ldb, p.form_b);
    layout(right_, type_of(p.precision), p.k, p.m, p.lda, p.form_a);
    layout(out_, CUDA_R_32F, p.n, p.m, p.ldc, Form::plain);
    choose(handle, p, alignments);
  }
  ProductPlan(const ProductPlan&) = delete;
  ProductPlan& operator=(const ProductPlan&) = delete;
  ~ProductPlan() {
    for (cublasLtMatrixLayout_t of : {left_, right_, out_}) blas().layout_destroy(of);
    blas().product_destroy(product_);
  }
  void run(cublasLtHandle_t handle, const Product& p, void* workspace, cudaStream_t stream) const {
    blas().must(blas().matmul(handle, product_, &p.alpha, p.b, left_, p.a, right_, &p.beta, p.c, out_, p.c, out_, &algorithm_, workspace,
                              kWorkspace, stream),
                "a matrix product");
  }

 private:
  void set(cublasLtMatmulDescAttributes_t what, Form form) {
    const cublasOperation_t operation = form == Form::plain ? CUBLAS_OP_N : CUBLAS_OP_T;
    blas().must(blas().product_set(product_, what, &operation, sizeof(operation)), "a product's form");
  }
  // `rows` x `columns` once it has its form.
  static void layout(cublasLtMatrixLayout_t& of, cudaDataType_t type, std::size_t rows, std::size_t columns, std::size_t ld, Form form) {
    if (form == Form::transposed) std::swap(rows, columns);
    blas().must(blas().layout_create(&of, type, rows, columns, std::int64_t(ld)), "a matrix");
  }
  void choose(cublasLtHandle_t handle, const Product& p, std::array<std::size_t, 3> alignments) {
    cublasLtMatmulPreference_t preference = nullptr;
    blas().must(blas().preference_create(&preference), "a preference");
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t what, auto value) {
      blas().must(blas().preference_set(preference, what, &value, sizeof(value)), "a preference");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t(kWorkspace));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, std::uint32_t(alignments[1]));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, std::uint32_t(alignments[0]));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, std::uint32_t(alignments[2]));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, std::uint32_t(alignments[2]));
    cublasLtMatmulHeuristicResult_t result{};
    int found = 0;
    const cublasStatus_t status = blas().heuristic(handle, product_, left_, right_, out_, out_, preference, 1, &result, &found);
    blas().preference_destroy(preference);
    blas().must(found > 0 ? status : CUBLAS_STATUS_NOT_SUPPORTED,
         fmt::format("a product of {} x {} x {} in {}", p.m, p.n, p.k, name_of(p.precision)).c_str());
    algorithm_ = result.algo;
  }
  cublasLtMatmulDesc_t product_ = nullptr;
  cublasLtMatrixLayout_t left_ = nullptr, right_ = nullptr, out_ = nullptr;
  cublasLtMatmulAlgo_t algorithm_{};
};

class CudaBackend final : public KernelBackend {
 public:
  CudaBackend(int number, const cudaDeviceProp& properties)
      : KernelBackend(std::size_t(properties.multiProcessorCount) * kBlocksOfAProcessor), number_(number), name_(properties.name) {
    must(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "a stream");
    must(cudaStreamCreateWithFlags(&exchanges_, cudaStreamNonBlocking), "a stream");
    blas().must(blas().create(&blas_), "cuBLASLt");
    workspace_ = Array<std::byte>(*this, kWorkspace);
  }
  ~CudaBackend() override {
    cudaStreamSynchronize(exchanges_);
    cudaStreamSynchronize(stream_);
    release_rooms();
    workspace_ = {};
    plans_.clear();
    blas().destroy(blas_);
    for (const auto& [bytes, at] : free_) cudaFree(at);
    cudaStreamDestroy(exchanges_);
    cudaStreamDestroy(stream_);
  }

  std::string describe() const override { return fmt::format("cuBLASLt {} on GPU {} ({})", blas().version(), number_, name_); }
  std::size_t large_product() const override { return 4096; }

  // What was released is given out again for as many bytes: in the order of the stream nobody uses it any more.
  void* allocate(std::size_t bytes) override {
    void* at = nullptr;
    if (const auto found = free_.find(bytes); found != free_.end()) {
      at = found->second;
      free_.erase(found);
    } else {
      cudaError_t error = cudaMalloc(&at, bytes);
      if (error == cudaErrorMemoryAllocation && !free_.empty()) {
        give_back();
        error = cudaMalloc(&at, bytes);
      }
      must(error, fmt::format("{} bytes of GPU {}; --recompute, a smaller --batch, --zero or --offload take less", bytes, number_).c_str());
    }
    sizes_[at] = bytes;
    clear(at, bytes);
    return at;
  }
  void release(void* at) override {
    const auto found = sizes_.find(at);
    free_.emplace(found->second, at);
    sizes_.erase(found);
  }
  // From memory that is not pinned, as here, the host's bytes have been read when the call returns.
  void upload(void* to, const void* host, std::size_t bytes) override {
    must(cudaMemcpyAsync(to, host, bytes, cudaMemcpyHostToDevice, stream_), "a copy to the GPU");
  }
  void download(void* host, const void* from, std::size_t bytes) override {
    must(cudaMemcpyAsync(host, from, bytes, cudaMemcpyDeviceToHost, stream_), "a copy from the GPU");
    must(cudaStreamSynchronize(stream_), "what the GPU was to do");
  }
  void copy(void* to, const void* from, std::size_t bytes) override {
    must(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_), "a copy on the GPU");
  }
  void clear(void* at, std::size_t bytes) override { must(cudaMemsetAsync(at, 0, bytes, stream_), "zeros on the GPU"); }

  DeviceStream exchange_stream() override {
    must(cudaEventRecord(called_.event, stream_), "an event");
    must(cudaStreamWaitEvent(exchanges_, called_.event, 0), "a wait of a stream");
    return DeviceStream(exchanges_);
  }
  Mark mark() override {
    auto event = std::make_shared<Event>(cudaEventDisableTiming);
    must(cudaEventRecord(event->event, exchanges_), "an event");
    return event;
  }
  void await(const Mark& mark) override {
    waits_.emplace_back(std::make_unique<Event>(cudaEventDefault), std::make_unique<Event>(cudaEventDefault));
    must(cudaEventRecord(waits_.back().first->event, stream_), "an event");
    must(cudaStreamWaitEvent(stream_, static_cast<const Event*>(mark.get())->event, 0), "a wait of a stream");
    must(cudaEventRecord(waits_.back().second->event, stream_), "an event");
  }
  double take_waited() override {
    must(cudaStreamSynchronize(stream_), "what the GPU was to do");
    double seconds = 0;
    for (const auto& [begin, end] : waits_) {
      float milliseconds = 0;
      must(cudaEventElapsedTime(&milliseconds, begin->event, end->event), "a time");
      seconds += double(milliseconds) / 1e3;
    }
    waits_.clear();
    return seconds;
  }

 protected:
  void launch(int kernel, std::size_t blocks, const void* arguments) override {
    must(cudaError_t(launches()[kernel](blocks, stream_, arguments)), "the launch of a kernel");
  }
  void multiply(const Product& p) override {
    const std::array<std::size_t, 3> alignments = {alignment_of(p.a), alignment_of(p.b), alignment_of(p.c)};
    const Key key = {p.m, p.n, p.k, p.lda, p.ldb, p.ldc, std::size_t(p.form_a), std::size_t(p.form_b), std::size_t(p.precision), alignments[0],
                     alignments[1], alignments[2]};
    auto& plan = plans_[key];
    if (!plan) plan = std::make_unique<ProductPlan>(blas_, p, alignments);
    plan->run(blas_, p, workspace_.data(), stream_);
  }

 private:
  using Key = std::array<std::size_t, 12>;
  void give_back() {
    for (const auto& [bytes, at] : free_) cudaFree(at);
    free_.clear();
  }
  const int number_;
  const std::string name_;
  cudaStream_t stream_ = nullptr, exchanges_ = nullptr;
  cublasLtHandle_t blas_ = nullptr;
  Event called_{cudaEventDisableTiming};
  std::vector<std::pair<std::unique_ptr<Event>, std::unique_ptr<Event>>> waits_;      // since take_waited()
  std::map<void*, std::size_t> sizes_;
  std::multimap<std::size_t, void*> free_;
  Array<std::byte> workspace_;
  std::map<Key, std::unique_ptr<ProductPlan>> plans_;
};

}  // namespace
}  // namespace tutti::trainer::cuda

namespace tutti::trainer {

int gpu_count() {
  int count = 0;
  if (cudaGetDeviceCount(&count) == cudaSuccess) return count;
  cudaGetLastError();
  return 0;
}

std::unique_ptr<Backend<float>> open_gpu(int number) {
  int count = 0;
  cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count == 0) error = cudaErrorNoDevice;
  if (error != cudaSuccess) {
    throw Failure(Status(Code::unsupported, fmt::format("--device cuda: no GPU can be used here: CUDA says {} ({}); is there a driver, and does "
                                                        "nvidia-smi list the GPU?", cudaGetErrorString(error), cudaGetErrorName(error))));
  }
  if (number >= count) refuse(fmt::format("--device cuda:{}: there are {} GPUs here, 0 to {}", number, count, count - 1));
  cudaDeviceProp properties{};
  cuda::must(cudaSetDevice(number), "choosing the GPU");
  cuda::must(cudaGetDeviceProperties(&properties, number), "looking at the GPU");
  return std::make_unique<cuda::CudaBackend>(number, properties);
}

}  // namespace tutti::trainer

#else

namespace tutti::trainer {

int gpu_count() { return 0; }
std::unique_ptr<Backend<float>> open_gpu(int) {
  throw Failure(Status(Code::unsupported, "--device cuda: this trainer was built without CUDA; build it where nvcc and cuBLASLt are found"));
}

}  // namespace tutti::trainer

#endif
