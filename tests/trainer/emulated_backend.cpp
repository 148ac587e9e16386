#include "tests/trainer/emulated_backend.h"
#include <cstdlib>
#include <cstring>
#include <gtest/gtest.h>
#include <memory>
#include <vector>
#include "tests/cuda/emulation.h"
#include "trainer/gemm.h"

namespace tutti::trainer::test {
namespace {

using emulation::Emulator;

// One block at a time: blocks know nothing of each other.
class EmulatedThread {
 public:
  EmulatedThread(emulation::Thread& of, std::size_t block, std::size_t blocks, std::vector<double>& values)
      : thread_(of), block_(block), blocks_(blocks), values_(values) {}
  std::size_t index() const { return block_ * block_size() + in_block(); }
  std::size_t count() const { return blocks_ * block_size(); }
  std::size_t block() const { return block_; }
  std::size_t blocks() const { return blocks_; }
  std::size_t in_block() const { return thread_.in_block(); }
  std::size_t block_size() const { return thread_.block_size(); }
  void sync() { thread_.sync(); }
  bool any(bool flag) { return thread_.any(flag); }
  template <class T>
  T sum(T x) {
    return joined(x, [](double a, double b) { return a + b; });
  }
  template <class T>
  T largest(T x) {
    return joined(x, [](double a, double b) { return a < b ? b : a; });
  }

 private:
  template <class T, class F>
  T joined(T x, F f) {
    values_[in_block()] = double(x);
    sync();
    double all = values_[0];
    for (std::size_t i = 1; i < values_.size(); ++i) all = f(all, values_[i]);
    sync();
    return T(all);
  }
  emulation::Thread& thread_;
  const std::size_t block_, blocks_;
  std::vector<double>& values_;
};

struct Plan {
  std::uint64_t seed;
  bool ignores_sync;
};

template <class Body>
void emulate(const Plan& plan, std::size_t blocks, const void* arguments) {
  constexpr std::size_t kFew = cuda::threads_of<Body>() == cuda::kThreads ? 64 : cuda::threads_of<Body>();
  const auto& a = *static_cast<const typename Body::Arguments*>(arguments);
  for (std::size_t block = 0; block < blocks; ++block) {
    Emulator emulator(plan.seed + block);
    emulator.ignores_sync = plan.ignores_sync;
    const auto shared = std::make_unique<typename Body::Shared>();
    std::memset(static_cast<void*>(shared.get()), 0x7f, sizeof(*shared));      // nothing is promised of it
    std::vector<double> values(kFew);
    emulator.add({1, int(kFew)}, [&](emulation::Thread& thread) {
      EmulatedThread mine(thread, block, blocks, values);
      Body{}(a, mine, *shared);
    });
    emulator.run();
  }
}

using Emulate = void (*)(const Plan&, std::size_t, const void*);
template <class... Bodies>
const Emulate* table(cuda::List<Bodies...>) {
  static const Emulate all[] = {emulate<Bodies>...};
  return all;
}

template <class... Bodies>
std::size_t bytes_of_arguments(int kernel, cuda::List<Bodies...>) {
  static constexpr std::size_t all[] = {sizeof(typename Bodies::Arguments)...};
  return all[kernel];
}

// As f32, whatever it is stored in.
std::vector<float> widened(const void* data, std::size_t count, Precision precision) {
  std::vector<float> x(count);
  if (precision == Precision::f32) std::memcpy(x.data(), data, count * sizeof(float));
  else unpack(precision, count, static_cast<const std::uint16_t*>(data), x.data());
  return x;
}

void multiply_now(const cuda::Product& p) {
  const auto count = [](std::size_t rows, std::size_t columns, std::size_t ld, Form form) {
    return form == Form::plain ? (rows - 1) * ld + columns : (columns - 1) * ld + rows;
  };
  const auto a = widened(p.a, count(p.m, p.k, p.lda, p.form_a), p.precision), b = widened(p.b, count(p.k, p.n, p.ldb, p.form_b), p.precision);
  trainer::product<float>(p.m, p.n, p.k, p.alpha, {a.data(), p.lda, p.form_a}, {b.data(), p.ldb, p.form_b}, p.beta, p.c, p.ldc);
}

}  // namespace

EmulatedBackend::~EmulatedBackend() {
  release_rooms();
  EXPECT_TRUE(held_.empty()) << held_.size() << " arrays were not given back";
}

void* EmulatedBackend::allocate(std::size_t bytes) {
  void* at = std::calloc(bytes, 1);
  held_.insert(at);
  return at;
}
void EmulatedBackend::release(void* at) {
  EXPECT_EQ(held_.erase(at), 1u);
  carry_out([at] { std::free(at); });
}
void EmulatedBackend::upload(void* to, const void* host, std::size_t bytes) {
  const auto* first = static_cast<const std::byte*>(host);
  carry_out([to, values = std::vector<std::byte>(first, first + bytes)] { std::memcpy(to, values.data(), values.size()); });
}
void EmulatedBackend::download(void* host, const void* from, std::size_t bytes) {
  copy(host, from, bytes);
  settle();
}
void EmulatedBackend::copy(void* to, const void* from, std::size_t bytes) {
  carry_out([=] { std::memcpy(to, from, bytes); });
}
void EmulatedBackend::clear(void* at, std::size_t bytes) {
  carry_out([=] { std::memset(at, 0, bytes); });
}

void EmulatedBackend::launch(int kernel, std::size_t blocks, const void* arguments) {
  ++launched_;
  const auto* first = static_cast<const std::byte*>(arguments);
  carry_out([kernel, blocks, plan = Plan{seed_ * 1000 + launched_, ignores_sync_},
             kept = std::vector<std::byte>(first, first + bytes_of_arguments(kernel, cuda::Kernels()))] {
    table(cuda::Kernels())[kernel](plan, blocks, kept.data());
  });
}

void EmulatedBackend::multiply(const cuda::Product& product) {
  carry_out([product] { multiply_now(product); });
}

}  // namespace tutti::trainer::test
