#include "tests/cuda/twin_device.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include <core/check.h>
#include <core/copy.h>
#include <kernels/kernels.h>

namespace tutti::twin {
namespace {

constexpr std::size_t kPage = 4096;
std::size_t pages(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

bool reached(const std::uint32_t* word, std::uint32_t value) {
  return std::int32_t(__atomic_load_n(word, __ATOMIC_ACQUIRE) - value) >= 0;
}

}  // namespace

TwinDevice::TwinDevice(std::uint64_t seed, Drive drive) : drive_(drive), random_(seed) {
  queues_[nullptr];
  if (drive == Drive::by_thread) thread_ = std::thread([this] { work(); });
}

TwinDevice::~TwinDevice() {
  {
    std::lock_guard held(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  while (!memory_.empty()) release(const_cast<std::byte*>(memory_.begin()->first));
  for (const auto& [at, bytes] : pinned_) ::operator delete(at, std::align_val_t(64));
  for (Event* event : events_) delete event;
}

// --- streams ---

StreamHandle TwinDevice::make_stream() {
  static std::atomic<std::uintptr_t> made{0};  // no two twins give the same
  const auto handle = reinterpret_cast<StreamHandle>(++made * 64);
  std::lock_guard held(mutex_);
  queues_[handle];
  return handle;
}

Result<StreamHandle> TwinDevice::open_stream() {
  const StreamHandle stream = make_stream();
  std::lock_guard held(mutex_);
  opened_.insert(stream);
  return stream;
}
void TwinDevice::close_stream(StreamHandle stream) {
  std::lock_guard held(mutex_);
  TUTTI_CHECK(opened_.erase(stream) == 1);
}
std::size_t TwinDevice::open_streams() {
  std::lock_guard held(mutex_);
  return opened_.size();
}

void TwinDevice::set_capturing(StreamHandle stream, bool capturing) {
  std::lock_guard held(mutex_);
  queues_.at(stream).capturing = capturing;
}

void TwinDevice::hold(StreamHandle stream, bool hold) {
  {
    std::lock_guard held(mutex_);
    queues_.at(stream).held = hold;
  }
  changed_.notify_all();
}

Status TwinDevice::enqueue(StreamHandle stream, Item item) {
  if (refuses_after >= 0 && refuses_after-- == 0) return Status(Code::out_of_resources, "the twin takes no more");
  {
    std::lock_guard held(mutex_);
    queues_.at(stream).items.push_back(std::move(item));
  }
  changed_.notify_all();
  return {};
}

// Mostly the same stream for a while, so that streams are far apart.
TwinDevice::Queue* TwinDevice::choose() {
  std::vector<std::pair<StreamHandle, Queue*>> able;
  for (auto& [handle, queue] : queues_)
    if (queue.can_go()) able.emplace_back(handle, &queue);
  if (able.empty()) return nullptr;
  if (random_() % 16 == 0) favourite_ = able[random_() % able.size()].first;
  for (const auto& [handle, queue] : able)
    if (handle == favourite_) return queue;
  return able[random_() % able.size()].second;
}

bool TwinDevice::step(std::unique_lock<std::mutex>& held) {
  Queue* const queue = choose();
  if (!queue) return false;
  Item item = std::move(queue->items.front());
  queue->running = true;
  held.unlock();
  const bool ended = !item.kernel || item.kernel();
  if (!item.kernel) item.run();
  if (!ended) std::this_thread::yield();
  held.lock();
  if (ended) queue->items.pop_front();
  else queue->items.front() = std::move(item);
  queue->running = false;
  changed_.notify_all();
  return true;
}

bool TwinDevice::step() {
  std::unique_lock held(mutex_);
  return step(held);
}

void TwinDevice::work() {
  std::unique_lock held(mutex_);
  while (!stopping_) {
    if (step(held)) {
      for (std::uint64_t late = random_() % 8 == 0 ? random_() % 32 : 0; late > 0; --late) {
        held.unlock();
        std::this_thread::yield();
        held.lock();
      }
      continue;
    }
    const bool idle = std::all_of(queues_.begin(), queues_.end(),
                                  [](const auto& q) { return q.second.items.empty() || q.second.held; });
    if (idle)
      changed_.wait(held);
    else
      changed_.wait_for(held, std::chrono::milliseconds(1));  // words in memory ring no bell
  }
}

bool TwinDevice::has_run(StreamHandle stream) {
  std::unique_lock held(mutex_);
  const Queue& queue = queues_.at(stream);
  if (drive_ == Drive::by_thread)
    return changed_.wait_for(held, std::chrono::minutes(1), [&] { return queue.items.empty(); });
  while (!queue.items.empty())
    if (!step(held)) return false;
  return true;
}

bool TwinDevice::has_run() {
  std::vector<StreamHandle> all;
  {
    std::lock_guard held(mutex_);
    for (const auto& [handle, queue] : queues_) all.push_back(handle);
  }
  return std::all_of(all.begin(), all.end(), [this](StreamHandle stream) { return has_run(stream); });
}

Status TwinDevice::synchronize(StreamHandle stream) {
  return has_run(stream) ? Status() : Status(Code::timeout, "the twin's stream cannot go on");
}

// --- memory ---

std::byte* TwinDevice::inside(const std::byte* memory) {
  std::lock_guard held(mutex_);
  return inside_held(memory);
}

std::byte* TwinDevice::inside_held(const std::byte* memory) const {
  auto it = memory_.upper_bound(memory);
  if (it == memory_.begin()) return const_cast<std::byte*>(memory);
  --it;
  const std::size_t at = std::size_t(memory - it->first);
  return at < it->second.bytes ? it->second.inside + at : const_cast<std::byte*>(memory);
}

bool TwinDevice::reaches(const void* memory) {
  const auto* const at = static_cast<const std::byte*>(memory);
  std::lock_guard held(mutex_);
  if (inside_held(at) != at) return true;
  auto it = pinned_.upper_bound(const_cast<std::byte*>(at));
  return it != pinned_.begin() && at < std::prev(it)->first + std::prev(it)->second;
}

// Twice: where nobody can touch it, and where the device does.
std::byte* TwinDevice::add(int file, std::size_t bytes, int kind) {
  const std::size_t size = pages(bytes);
  void* const outside = mmap(nullptr, size, PROT_NONE, MAP_SHARED, file, 0);
  void* const within = mmap(nullptr, size, PROT_READ | PROT_WRITE, kind, file, 0);
  TUTTI_CHECK(outside != MAP_FAILED && within != MAP_FAILED);
  std::lock_guard held(mutex_);
  static std::atomic<std::uint64_t> made{0};
  memory_[static_cast<std::byte*>(outside)] = {bytes, static_cast<std::byte*>(within), -1, ++made};
  return static_cast<std::byte*>(outside);
}

Result<std::byte*> TwinDevice::allocate(std::size_t bytes) {
  if (bytes > most_memory) return Status(Code::out_of_resources, fmt::format("{} bytes of device memory: the twin has none", bytes));
  auto memory = allocate_shared(bytes);
  std::lock_guard held(mutex_);
  std::memset(memory_.at(*memory).inside, 0xa5, pages(bytes));
  return memory;
}

Result<std::byte*> TwinDevice::allocate_shared(std::size_t bytes) {
  ++allocations_;
  const int file = memfd_create("twin", MFD_CLOEXEC);
  TUTTI_CHECK(file >= 0 && ftruncate(file, off_t(pages(bytes))) == 0);
  std::byte* const memory = add(file, bytes, MAP_SHARED);
  std::lock_guard held(mutex_);
  memory_.at(memory).file = file;
  return memory;
}

namespace {
struct Named {
  int process, file;
  std::size_t bytes;
};
}  // namespace

std::string TwinDevice::identity() const { return fmt::format("twin {} of process {}", static_cast<const void*>(this), getpid()); }

Result<MemoryHandle> TwinDevice::share(std::byte* memory) {
  std::lock_guard held(mutex_);
  const Memory& shared = memory_.at(memory);
  const Named named{getpid(), shared.file, shared.bytes};
  MemoryHandle handle;
  std::memcpy(handle.bytes.data(), &named, sizeof named);
  return handle;
}

Result<std::byte*> TwinDevice::open_shared(const MemoryHandle& handle) {
  if (opens_nothing) return Status(Code::unsupported, "the twin has no way to other GPUs");
  Named named;
  std::memcpy(&named, handle.bytes.data(), sizeof named);
  const int file = open(fmt::format("/proc/{}/fd/{}", named.process, named.file).c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return Status(Code::unsupported, fmt::format("the memory of process {} cannot be opened", named.process));
  std::byte* const memory = add(file, named.bytes, loses_writes ? MAP_PRIVATE : MAP_SHARED);
  close(file);
  return memory;
}

void TwinDevice::release(std::byte* memory) {
  std::lock_guard held(mutex_);
  const auto it = memory_.find(memory);
  TUTTI_CHECK(it != memory_.end());
  munmap(it->second.inside, pages(it->second.bytes));
  munmap(memory, pages(it->second.bytes));
  if (it->second.file >= 0) close(it->second.file);
  memory_.erase(it);
}

std::span<std::byte> TwinDevice::give_to_host(std::byte* memory) {
  std::lock_guard held(mutex_);
  const auto it = memory_.find(memory);
  TUTTI_CHECK(it != memory_.end());
  const std::size_t size = pages(it->second.bytes);
  TUTTI_CHECK(mmap(memory, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == memory);
  munmap(it->second.inside, size);
  if (it->second.file >= 0) close(it->second.file);
  memory_.erase(it);
  return {memory, size};
}

std::byte* TwinDevice::reached_by_devices(const std::byte* memory, std::size_t bytes) {
  std::byte* const first = inside(memory);
  return first != memory && inside(memory + bytes - 1) == first + bytes - 1 ? first : nullptr;
}

Result<Device::Exported> TwinDevice::export_memory(const std::byte* memory, std::size_t) {
  if (!exports_memory) return Status(Code::unsupported, "no dma-buf support in this driver");
  std::lock_guard held(mutex_);
  auto it = memory_.upper_bound(memory);
  TUTTI_CHECK(it != memory_.begin());
  --it;
  return Exported{dup(it->second.file), std::uint64_t(memory - it->first)};
}

Result<Device::Allocation> TwinDevice::allocation_of(const std::byte* memory) {
  std::lock_guard held(mutex_);
  auto it = memory_.upper_bound(memory);
  if (it == memory_.begin() || memory >= (--it)->first + it->second.bytes) return Status(Code::unsupported, "no memory of the twin");
  return Allocation{it->first, it->second.bytes, it->second.number};
}

std::vector<std::byte> TwinDevice::read(const std::byte* memory, std::size_t bytes) {
  const std::byte* const from = inside(memory);
  return {from, from + bytes};
}
void TwinDevice::write(std::byte* memory, std::span<const std::byte> bytes) {
  std::memcpy(inside(memory), bytes.data(), bytes.size());
}

Result<std::byte*> TwinDevice::allocate_pinned(std::size_t bytes) {
  if (bytes > most_pinned) return Status(Code::out_of_resources, fmt::format("{} bytes of pinned memory: the twin has none", bytes));
  ++allocations_;
  auto* const memory = static_cast<std::byte*>(::operator new(bytes, std::align_val_t(64)));
  std::memset(memory, 0, bytes);
  std::lock_guard held(mutex_);
  pinned_[memory] = bytes;
  return memory;
}
void TwinDevice::release_pinned(std::byte* memory) {
  std::lock_guard held(mutex_);
  TUTTI_CHECK(pinned_.erase(memory) == 1);
  ::operator delete(memory, std::align_val_t(64));
}
std::size_t TwinDevice::pinned_bytes() {
  std::lock_guard held(mutex_);
  std::size_t sum = 0;
  for (const auto& [at, bytes] : pinned_) sum += bytes;
  return sum;
}

// --- what streams do ---

Result<EventHandle> TwinDevice::make_event() {
  ++allocations_;
  std::lock_guard held(mutex_);
  return EventHandle(*events_.insert(new Event).first);
}
void TwinDevice::release_event(EventHandle) {}  // with the device: something may wait for it

Result<bool> TwinDevice::capturing(StreamHandle stream) {
  std::lock_guard held(mutex_);
  return queues_.at(stream).capturing;
}

Status TwinDevice::record(StreamHandle stream, EventHandle handle) {
  auto* const event = static_cast<Event*>(handle);
  std::uint64_t version;
  {
    std::lock_guard held(mutex_);
    version = ++event->recorded;
  }
  return enqueue(stream, {nullptr, [event, version] { event->reached = version; }});
}

Status TwinDevice::wait(StreamHandle stream, EventHandle handle) {
  if (drops_waits) return {};
  auto* const event = static_cast<Event*>(handle);
  std::uint64_t version;
  {
    std::lock_guard held(mutex_);
    version = event->recorded;
  }
  return enqueue(stream, {[event, version] { return event->reached >= version; }, [] {}});
}

Status TwinDevice::copy(StreamHandle stream, std::byte* to, const std::byte* from, const Rows& rows) {
  return enqueue(stream, {nullptr, [this, to, from, rows] {
                            if ((inside(to) != to) != (inside(from) != from)) staged_bytes_ += rows.bytes * rows.rows;
                            for (std::size_t r = 0; r < rows.rows; ++r)
                              std::memcpy(inside(to + r * rows.to_pitch), inside(from + r * rows.from_pitch),
                                          rows.bytes);
                          }});
}

Status TwinDevice::call(StreamHandle stream, void (*function)(void*), void* argument) {
  return enqueue(stream, {nullptr, [function, argument] { function(argument); }});
}

Status TwinDevice::await(StreamHandle stream, const std::uint32_t* word, std::uint32_t value) {
  if (drops_awaits) return {};
  return enqueue(stream, {[word, value] { return reached(word, value); }, [] {}});
}

struct TwinDevice::Lane {
  const Passage *passage, *end;
  std::uint32_t in = 0, out = 0;
};

// As far as it can go now; whether it is through.
bool TwinDevice::carry(Lane& lane) {
  for (; lane.passage != lane.end; ++lane.passage, lane.in = lane.out = 0) {
    const Passage& p = *lane.passage;
    while (lane.out < p.slices) {
      if (lane.in < p.slices && lane.in < lane.out + Passage::kSlots) {
        if (p.remark) std::memcpy(p.remark_of(lane.in), inside_held(p.remark), p.remark_bytes);
        for (std::uint32_t r = p.in_begin; r < p.in_end; ++r) staged_bytes_ += p.bytes(r, lane.in);
        for (std::uint32_t r = p.in_begin; r < p.in_end; ++r)
          std::memcpy(p.slot(lane.in) + p.offset(r, lane.in),
                      inside_held(p.input + p.rows[r].at + lane.in * p.each), p.bytes(r, lane.in));
        std::atomic_ref(*p.arrived).store(p.first + lane.in++, std::memory_order_release);
        continue;
      }
      if (!reached(p.done, p.first + lane.out) && !drops_awaits) return false;
      for (std::uint32_t r = p.out_begin; r < p.out_end; ++r) staged_bytes_ += p.bytes(r, lane.out);
      for (std::uint32_t r = p.out_begin; r < p.out_end; ++r)
        std::memcpy(inside_held(p.output + p.rows[r].at + lane.out * p.each),
                    p.slot(lane.out) + p.offset(r, lane.out), p.bytes(r, lane.out));
      ++lane.out;
    }
  }
  return true;
}

Status TwinDevice::carry(StreamHandle stream, const Carriage& carriage) {
  std::vector<Lane> lanes;
  for (std::uint32_t l = 0; l < carriage.lane_count; ++l)
    lanes.push_back({carriage.passages + carriage.lanes[l], carriage.passages + carriage.lanes[l + 1]});
  const auto ready = [this, lanes]() mutable {
    bool all = true;
    for (Lane& lane : lanes) all &= carry(lane);
    return all;
  };
  return enqueue(stream, {ready, [] {}});
}

Status TwinDevice::reduce(StreamHandle stream, const DeviceReduction& given) {
  for (int k = 0; k < given.n && given.count > 0; ++k)
    if (!reaches(given.inputs[k]) || !reaches(given.out)) return Status(Code::internal, "reduce: a kernel would touch memory that the GPU does not reach");
  std::vector<double> factors(given.factors, given.factors + (given.factors ? given.n : 0));
  return enqueue(stream,
                 {nullptr, [this, given, factors] {
                    const std::size_t bytes = given.count * size_of(given.type);
                    std::vector<std::vector<std::byte>> scaled;
                    std::vector<const std::byte*> inputs;
                    for (int k = 0; k < given.n; ++k) {
                      scaled.emplace_back(bytes);
                      const std::byte* const from = inside(given.inputs[k]);
                      if (factors.empty())
                        copy_bytes(scaled.back().data(), from, bytes);
                      else
                        kernels::scale(given.type, scaled.back().data(), from, given.count, factors[std::size_t(k)]);
                      inputs.push_back(scaled.back().data());
                    }
                    kernels::reduce(given.type, given.op, inside(given.out), inputs, given.count, {given.divide_by});
                  }});
}

Status TwinDevice::cast(StreamHandle stream, DataType to, std::byte* out, DataType from, const std::byte* in,
                        std::size_t count) {
  return enqueue(stream, {nullptr, [=, this] { kernels::cast(to, inside(out), from, inside(in), count); }});
}

Status TwinDevice::exchange(StreamHandle stream, const SharedExchange& given) {
  TUTTI_CHECK(make_kernel);
  // The pointers may be released before it runs only if the test is wrong: then they are translated to something that faults.
  const auto started = std::make_shared<Kernel>();
  return enqueue(stream, {nullptr, nullptr, [this, given, started] {
                            if (!*started) {
                              SharedExchange touched = given;
                              touched.input = inside(given.input);
                              touched.output = inside(given.output);
                              touched.factor_on_device = inside(given.factor_on_device);
                              for (int r = 0; r < given.ranks; ++r) touched.areas[r] = inside(given.areas[r]);
                              *started = make_kernel(touched);
                            }
                            return (*started)();
                          }});
}

}  // namespace tutti::twin
