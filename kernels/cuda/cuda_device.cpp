#include "kernels/cuda/cuda_device.h"

#include <fmt/format.h>

#if defined(TUTTI_HAS_CUDA)
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <vector>

#include "core/check.h"
#include "kernels/cast.h"
#include "kernels/cuda/await_body.h"
#include "kernels/cuda/carry_body.h"
#include "kernels/cuda/cast_body.h"
#include "kernels/cuda/shared_body.h"
#include "kernels/cuda/table.h"

namespace tutti::kernels::cuda {
namespace {

constexpr std::size_t kMostPitch = 0x7fffffff;  // what cudaMemcpy2D takes (cudaDevAttrMaxPitch)
constexpr int kMostBlocksPerProcessor = 8;  // of kThreads: 2048 threads, as many as a processor of the GPU runs at once

Status status_of(cudaError_t error, const std::string& what) {
  if (error == cudaSuccess) return {};
  const Code code = error == cudaErrorMemoryAllocation ? Code::out_of_resources : Code::internal;
  return Status(code, fmt::format("{}: CUDA says {} ({})", what, cudaGetErrorString(error), cudaGetErrorName(error)));
}

const TypeTable& table_of(DataType type) {
  using Get = const TypeTable& (*)();
  constexpr Get tables[] = {i8_table,  u8_table,   i32_table, u32_table, i64_table,    u64_table,
                            f16_table, bf16_table, f32_table, f64_table, f8e4m3_table, f8e5m2_table};
  static_assert(std::size(tables) == kTypes);
  return tables[int(type)]();
}

Combine combine_of(ReduceOp op) {
  return op == ReduceOp::prod ? kProd : op == ReduceOp::min ? kMin : op == ReduceOp::max ? kMax : kSum;
}

int blocks_for(std::size_t bytes) {
  int device = 0, processors = 1;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  const std::size_t packs = bytes / 16 + 1, wanted = (packs + kThreads - 1) / kThreads;
  return int(std::min<std::size_t>(wanted, std::size_t(processors) * kMostBlocksPerProcessor));
}

// Of the driver; null: it has none such.
template <class Function>
Function find_in_driver(const char* name, unsigned version) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  const cudaError_t error = cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &result);
  if (error != cudaSuccess || result != cudaDriverEntryPointSuccess) {
    cudaGetLastError();
    return nullptr;
  }
  return reinterpret_cast<Function>(found);
}

// Since 12.0 streams can wait for memory wherever there is a driver of that age.
using StreamWait = CUresult (*)(CUstream, CUdeviceptr, cuuint32_t, unsigned);
using GetAttribute = CUresult (*)(void*, CUpointer_attribute, CUdeviceptr);
using GetRangeHandle = CUresult (*)(void*, CUdeviceptr, std::size_t, CUmemRangeHandleType, unsigned long long);

// What a MemoryHandle holds: where the memory is for this process's own threads, and CUDA's name of it for others.
struct Named {
  std::uint64_t process = 0;  // drawn by each process
  void* memory = nullptr;
  int device = 0, refused = 0;  // a cudaError_t, why there is no name
  cudaIpcMemHandle_t name{};
};
static_assert(sizeof(Named) <= sizeof(MemoryHandle));

std::uint64_t this_process() {
  static const std::uint64_t drawn = [] {
    std::random_device random;
    return std::uint64_t(random()) << 32 | random();
  }();
  return drawn;
}

// The GPU that is meant, for as long as a call takes: the thread may have another one current.
class Current {
 public:
  explicit Current(int device) {
    if (cudaGetDevice(&before_) != cudaSuccess || before_ == device) before_ = -1;
    if (before_ >= 0) cudaSetDevice(device);
  }
  ~Current() {
    if (before_ >= 0) cudaSetDevice(before_);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  int before_ = -1;
};

// Done when it returns, and in nobody's way: the default stream would wait for others, and be waited for.
cudaError_t clear(void* memory, std::size_t bytes) {
  cudaStream_t stream = nullptr;
  if (const cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking); error != cudaSuccess)
    return error;
  cudaError_t error = cudaMemsetAsync(memory, 0, bytes, stream);
  if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
  cudaStreamDestroy(stream);
  return error;
}

constexpr std::size_t kSharedUnit = 2 << 20;  // smaller allocations may share a piece of memory, which has one name

class CudaDevice final : public Device {
 public:
  CudaDevice(int index, std::string name, std::string identity)
      : index_(index), name_(std::move(name)), identity_(std::move(identity)),
        stream_wait_(find_in_driver<StreamWait>("cuStreamWaitValue32", 12000)),
        get_range_handle_(find_in_driver<GetRangeHandle>("cuMemGetHandleForAddressRange", 11070)),
        get_attribute_(find_in_driver<GetAttribute>("cuPointerGetAttribute", 4000)) {}

  std::string describe() const override { return name_; }
  std::string identity() const override { return identity_; }
  Result<std::byte*> allocate(std::size_t bytes) override {
    const Current use(index_);
    void* memory = nullptr;
    const Status status = status_of(cudaMalloc(&memory, bytes), fmt::format("{} bytes of device memory", bytes));
    return status.ok() ? Result<std::byte*>(static_cast<std::byte*>(memory)) : status;
  }
  void release(std::byte* memory) override { cudaFree(memory); }
  Result<std::byte*> allocate_pinned(std::size_t bytes) override {
    std::byte* memory = take(spare_pinned_, bytes);
    if (!memory) {
      const Current use(index_);
      void* fresh = nullptr;
      const Status status = status_of(cudaHostAlloc(&fresh, bytes, cudaHostAllocPortable | cudaHostAllocMapped),
                                      fmt::format("{} bytes of pinned memory", bytes));
      if (!status.ok()) return status;
      memory = static_cast<std::byte*>(fresh);
    }
    std::fill_n(memory, bytes, std::byte{});
    std::lock_guard held(mutex_);
    pinned_[memory] = bytes;
    return memory;
  }
  void release_pinned(std::byte* memory) override {
    std::lock_guard held(mutex_);
    const auto at = pinned_.find(memory);
    spare_pinned_.emplace(at->second, memory);
    pinned_.erase(at);
  }
  Result<EventHandle> make_event() override {
    if (const EventHandle spare = take(spare_events_, std::size_t(0))) return spare;
    const Current use(index_);
    cudaEvent_t event = nullptr;
    const Status status = status_of(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "an event");
    return status.ok() ? Result<EventHandle>(event) : status;
  }
  void release_event(EventHandle event) override {
    std::lock_guard held(mutex_);
    spare_events_.emplace(0, event);
  }

  bool reaches(const void* memory) override {
    const Current use(index_);
    cudaPointerAttributes attributes{};
    if (cudaPointerGetAttributes(&attributes, memory) == cudaSuccess)
      return attributes.type != cudaMemoryTypeUnregistered;
    cudaGetLastError();
    return false;
  }
  Status synchronize(StreamHandle stream) override {
    const Current use(index_);
    return status_of(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)), "waiting for the stream");
  }
  Result<StreamHandle> open_stream() override {
    destroy_streams();
    const Current use(index_);
    cudaStream_t stream = nullptr;
    const Status status = status_of(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
    return status.ok() ? Result<StreamHandle>(stream) : status;
  }
  void close_stream(StreamHandle stream) override {
    std::lock_guard held(mutex_);
    streams_.push_back(stream);
  }

  Result<std::byte*> allocate_shared(std::size_t bytes) override {
    give_back();
    const Current use(index_);
    void* memory = nullptr;
    const std::size_t whole = (bytes + kSharedUnit - 1) / kSharedUnit * kSharedUnit;
    if (Status status = status_of(cudaMalloc(&memory, whole), fmt::format("{} bytes of device memory", whole));
        !status.ok())
      return status;
    const Status status = status_of(clear(memory, whole), "zeroes in device memory");
    return status.ok() ? Result<std::byte*>(static_cast<std::byte*>(memory)) : status;
  }
  Result<MemoryHandle> share(std::byte* memory) override {
    const Current use(index_);
    Named named{this_process(), memory, index_, 0, {}};
    named.refused = int(cudaIpcGetMemHandle(&named.name, memory));  // threads of this process do without
    if (named.refused) cudaGetLastError();
    MemoryHandle handle;
    std::memcpy(handle.bytes.data(), &named, sizeof named);
    return handle;
  }
  Result<std::byte*> open_shared(const MemoryHandle& handle) override {
    give_back();
    Named named;
    std::memcpy(&named, handle.bytes.data(), sizeof named);
    return named.process == this_process() ? open_ours(named) : open_theirs(named);
  }
  void close_shared(std::byte* memory) override {
    std::lock_guard held(mutex_);
    closed_.push_back(memory);
  }

  Result<bool> capturing(StreamHandle stream) override {
    const Current use(index_);
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    const Status status =
        status_of(cudaStreamIsCapturing(static_cast<cudaStream_t>(stream), &capture), "the stream of the call");
    return status.ok() ? Result<bool>(capture != cudaStreamCaptureStatusNone) : status;
  }
  Status record(StreamHandle stream, EventHandle event) override {
    const Current use(index_);
    return status_of(cudaEventRecord(static_cast<cudaEvent_t>(event), static_cast<cudaStream_t>(stream)),
                     "an event on the stream");
  }
  Status wait(StreamHandle stream, EventHandle event) override {
    const Current use(index_);
    return status_of(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), static_cast<cudaEvent_t>(event), 0),
                     "a wait on the stream");
  }
  Status copy(StreamHandle stream, std::byte* to, const std::byte* from, const Rows& rows) override {
    if (rows.bytes == 0 || rows.rows == 0) return {};
    const Current use(index_);
    const auto s = static_cast<cudaStream_t>(stream);
    cudaError_t error = cudaSuccess;
    if (rows.rows > 1 && std::max(rows.to_pitch, rows.from_pitch) <= kMostPitch)
      error = cudaMemcpy2DAsync(to, rows.to_pitch, from, rows.from_pitch, rows.bytes, rows.rows, cudaMemcpyDefault, s);
    else
      for (std::size_t r = 0; r < rows.rows && error == cudaSuccess; ++r)
        error = cudaMemcpyAsync(to + r * rows.to_pitch, from + r * rows.from_pitch, rows.bytes, cudaMemcpyDefault, s);
    return status_of(error, fmt::format("a copy of {} times {} bytes", rows.rows, rows.bytes));
  }
  Status call(StreamHandle stream, void (*function)(void*), void* argument) override {
    const Current use(index_);
    return status_of(cudaLaunchHostFunc(static_cast<cudaStream_t>(stream), function, argument), "a call on the stream");
  }
  Status await(StreamHandle stream, const std::uint32_t* word, std::uint32_t value) override {
    const Current use(index_);
    if (!stream_wait_) return status_of(cudaError_t(launch_await(stream, {word, value})), "a kernel that waits");
    const CUresult result =
        stream_wait_(static_cast<CUstream>(stream), CUdeviceptr(word), value, CU_STREAM_WAIT_VALUE_GEQ);
    if (result == CUDA_SUCCESS) return {};
    return Status(Code::internal, fmt::format("a wait of the stream for memory: the CUDA driver says {}", int(result)));
  }
  Status carry(StreamHandle stream, const Carriage& carriage) override {
    if (carriage.lane_count > kLanesOfBlock * kCarryBlocks)
      return Status(Code::unsupported, fmt::format("{} sends and receives in one group, at most {} go together",
                                                   carriage.lane_count, kLanesOfBlock * kCarryBlocks));
    const Current use(index_);
    const int blocks = int(std::min<std::size_t>(carriage.lane_count, kCarryBlocks));
    return status_of(cudaError_t(launch_carry(blocks, stream, carriage)), "the kernel of a group");
  }
  Status reduce(StreamHandle stream, const DeviceReduction& r) override {
    TUTTI_CHECK(r.n >= 1 && r.n <= kPassInputs && r.divide_by != 0);
    const Current use(index_);
    ReduceArguments a;
    a.out = r.out;
    std::copy_n(r.inputs, r.n, a.inputs);
    a.n = r.n;
    a.count = r.count;
    a.divide_by = r.divide_by;
    a.scaled = r.factors != nullptr;
    for (int k = 0; r.factors && k < r.n; ++k) a.factors[k] = rounded_factor(r.type, r.factors[k]);
    const Launch launch = table_of(r.type).reduce[combine_of(r.op)][r.n - 1];
    return status_of(cudaError_t(launch(blocks_for(r.count * size_of(r.type)), stream, &a)),
                     "the kernel of a reduction");
  }
  Status cast(StreamHandle stream, DataType to, std::byte* out, DataType from, const std::byte* in,
              std::size_t count) override {
    const Current use(index_);
    const CastArguments a{out, in, count};
    return status_of(cudaError_t(table_of(from).cast[int(to)](blocks_for(count * size_of(from)), stream, &a)),
                     "the kernel of a cast");
  }
  Status exchange(StreamHandle stream, const SharedExchange& r) override {
    TUTTI_CHECK(r.blocks >= 1 && r.blocks <= SharedExchange::kMostBlocks && r.ranks <= kSharedRanks &&
                r.row_bytes(r.count * size_of(r.type)) * std::size_t(r.rows) <= r.half);
    const Current use(index_);
    const SharedArguments a = arguments_of(r, rounded_factor(r.type, r.factor));
    const TypeTable& table = table_of(r.type);
    const int error = !r.reduces ? launch_collect(r.blocks, stream, a)
                                 : (r.two_shot ? table.two_shot : table.one_shot)[combine_of(r.op)](r.blocks, stream, &a);
    return status_of(cudaError_t(error), "the kernel of a collective");
  }

  // The driver wants whole pages of the host.
  Result<Exported> export_memory(const std::byte* memory, std::size_t bytes) override {
    int supported = 0;
    cudaDeviceGetAttribute(&supported, cudaDeviceAttr(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED), index_);
    if (!supported || !get_range_handle_) return Status(Code::unsupported, "no dma-buf support in this driver");
    const std::size_t page = std::size_t(::sysconf(_SC_PAGESIZE));
    const auto at = reinterpret_cast<std::uintptr_t>(memory);
    const std::uintptr_t first = at / page * page, end = (at + bytes + page - 1) / page * page;
    int descriptor = -1;
    const CUresult result = get_range_handle_(&descriptor, first, end - first, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
    if (result != CUDA_SUCCESS)
      return Status(Code::unsupported, fmt::format("a dma-buf of {} bytes: the CUDA driver says {}", bytes, int(result)));
    return Exported{descriptor, at - first};
  }
  Result<Allocation> allocation_of(const std::byte* memory) override {
    const Current use(index_);
    cudaPointerAttributes attributes{};
    if (cudaPointerGetAttributes(&attributes, memory) != cudaSuccess || attributes.type != cudaMemoryTypeDevice) {
      cudaGetLastError();
      return Status(Code::unsupported, "no memory of the device");
    }
    CUdeviceptr first = 0;
    std::size_t bytes = 0;
    unsigned long long number = 0;
    const auto ask = [&](void* to, CUpointer_attribute what) { return get_attribute_ && get_attribute_(to, what, CUdeviceptr(memory)) == CUDA_SUCCESS; };
    if (!ask(&first, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR) || !ask(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE) || !ask(&number, CU_POINTER_ATTRIBUTE_BUFFER_ID))
      return Status(Code::unsupported, "the CUDA driver does not tell of its allocations");
    return Allocation{reinterpret_cast<const std::byte*>(first), bytes, number};
  }
  Status take_remote_writes() override {
    int ordering = 0, options = 0;
    cudaDeviceGetAttribute(&ordering, cudaDevAttrGPUDirectRDMAWritesOrdering, index_);
    if (ordering >= cudaGPUDirectRDMAWritesOrderingOwner) return {};
    cudaDeviceGetAttribute(&options, cudaDevAttrGPUDirectRDMAFlushWritesOptions, index_);
    if (!(options & cudaFlushGPUDirectRDMAWritesOptionHost))
      return Status(Code::unsupported, "the GPU does not tell when it sees what other devices have written");
    const Current use(index_);
    return status_of(cudaDeviceFlushGPUDirectRDMAWrites(cudaFlushGPUDirectRDMAWritesTargetCurrentDevice, cudaFlushGPUDirectRDMAWritesToOwner),
                     "waiting for what other devices have written");
  }
  std::string bus_address() const override {
    char text[32] = "";
    if (cudaDeviceGetPCIBusId(text, sizeof text, index_) != cudaSuccess) return cudaGetLastError(), "";
    std::string out(text);
    std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return char(std::tolower(c)); });
    return out;
  }
  int numa_node() const override {
    std::ifstream file("/sys/bus/pci/devices/" + bus_address() + "/numa_node");
    int node = -1;
    return file >> node ? node : -1;
  }

 private:
  // One that was released; null where there is none of that size.
  template <class T>
  T take(std::multimap<std::size_t, T>& spare, std::size_t size) {
    std::lock_guard held(mutex_);
    const auto at = spare.find(size);
    return at == spare.end() ? nullptr : spare.extract(at).mapped();
  }

  // Of another thread of this process: the pointer serves, if the one GPU reaches the other.
  Result<std::byte*> open_ours(const Named& named) {
    const auto at = static_cast<std::byte*>(named.memory);
    if (named.device == index_) return at;
    int can = 0;
    cudaDeviceCanAccessPeer(&can, index_, named.device);
    if (!can)
      return Status(
          Code::unsupported,
          fmt::format("CUDA device {} has no peer access to device {} (the driver offers none: not under one PCIe "
                      "root, or a card without it; nvidia-smi topo -p2p r shows it)",
                      index_, named.device));
    const Current use(index_);
    const cudaError_t error = cudaDeviceEnablePeerAccess(named.device, 0);
    if (error == cudaSuccess) return at;
    cudaGetLastError();
    if (error == cudaErrorPeerAccessAlreadyEnabled) return at;
    return Status(Code::unsupported, status_of(error, fmt::format("peer access to device {}", named.device)).text());
  }
  Result<std::byte*> open_theirs(const Named& named) {
    if (named.refused)
      return Status(Code::unsupported,
                    status_of(cudaError_t(named.refused), "a name of its memory for other processes").text());
    const Current use(index_);
    void* memory = nullptr;
    const cudaError_t error = cudaIpcOpenMemHandle(&memory, named.name, cudaIpcMemLazyEnablePeerAccess);
    if (error != cudaSuccess) {
      cudaGetLastError();
      return Status(Code::unsupported, status_of(error,
                                                 "memory of another process's GPU (both processes must see both GPUs: "
                                                 "CUDA_VISIBLE_DEVICES, containers)")
                                           .text());
    }
    std::lock_guard held(mutex_);
    opened_.insert(static_cast<std::byte*>(memory));
    return static_cast<std::byte*>(memory);
  }

  // What was closed, from a thread that may call CUDA. It does not wait for what is enqueued.
  void destroy_streams() {
    std::vector<StreamHandle> closed;
    {
      std::lock_guard held(mutex_);
      closed.swap(streams_);
    }
    for (StreamHandle stream : closed) cudaStreamDestroy(static_cast<cudaStream_t>(stream));
  }
  // Waits for the GPU.
  void give_back() {
    destroy_streams();
    std::lock_guard held(mutex_);
    for (std::byte* memory : closed_)
      if (const auto at = opened_.find(memory); at != opened_.end()) {
        cudaIpcCloseMemHandle(memory);
        opened_.erase(at);
      }
    closed_.clear();
  }

  int index_;
  std::string name_, identity_;
  StreamWait stream_wait_;
  GetRangeHandle get_range_handle_;
  GetAttribute get_attribute_;
  std::mutex mutex_;
  std::map<std::byte*, std::size_t> pinned_;
  // Kept for the next: to free pinned memory waits for all streams of the GPU, and they may wait for who wants to.
  std::multimap<std::size_t, std::byte*> spare_pinned_;
  std::multimap<std::size_t, EventHandle> spare_events_;
  std::vector<StreamHandle> streams_;  // closed
  std::multiset<std::byte*> opened_;  // by a name: as often as it was opened
  std::vector<std::byte*> closed_;
};

std::string identity_of(const cudaDeviceProp& properties) {
  std::string text = "GPU-";
  for (const char byte : properties.uuid.bytes) text += fmt::format("{:02x}", std::uint8_t(byte));
  return text;
}

}  // namespace

Result<std::shared_ptr<Device>> open_device(int wanted) {
  // One a GPU, for good: its last user may be a call on a stream, from where CUDA must not be called.
  static std::mutex mutex;
  static auto* const devices = new std::map<int, std::shared_ptr<Device>>;
  int count = 0, index = wanted;
  cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count == 0) error = cudaErrorNoDevice;
  if (error == cudaSuccess && wanted < 0) error = cudaGetDevice(&index);
  std::lock_guard held(mutex);
  if (error == cudaSuccess)
    if (const auto known = devices->find(index); known != devices->end()) return known->second;
  cudaDeviceProp properties{};
  if (error == cudaSuccess) error = cudaGetDeviceProperties(&properties, index);
  if (error != cudaSuccess) {
    cudaGetLastError();
    return Status(
        Code::unsupported,
        fmt::format("no GPU can be used here: CUDA says {} ({}); is there a driver, and does nvidia-smi list the GPU?",
                    cudaGetErrorString(error), cudaGetErrorName(error)));
  }
  return (*devices)[index] = std::make_shared<CudaDevice>(
             index, fmt::format("CUDA device {} ({})", index, properties.name), identity_of(properties));
}

}  // namespace tutti::kernels::cuda

#else

namespace tutti::kernels::cuda {

Result<std::shared_ptr<Device>> open_device(int) {
  return Status(Code::unsupported,
                "this build of tutti has no CUDA: build it where nvcc is found (TUTTI_CUDA=ON says why it is not)");
}

}  // namespace tutti::kernels::cuda

#endif
