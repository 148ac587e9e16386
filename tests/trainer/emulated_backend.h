#pragma once
// The trainer's kernels without a GPU: their bodies on emulated blocks of threads (tests/cuda/emulation.h), products by BLAS, memory of the
// host that counts what is not given back.
#include <functional>
#include <set>
#include "trainer/cuda/kernel_backend.h"

namespace tutti::trainer::test {

class EmulatedBackend : public cuda::KernelBackend {
 public:
  // `seed`: of the order in which threads run. `ignores_sync`: a plant, threads of a block do not wait for each other.
  explicit EmulatedBackend(std::uint64_t seed = 1, bool ignores_sync = false) : KernelBackend(3), seed_(seed), ignores_sync_(ignores_sync) {}
  ~EmulatedBackend() override;
  std::string describe() const override { return "emulated"; }
  void* allocate(std::size_t bytes) override;
  void release(void* at) override;
  void upload(void* to, const void* host, std::size_t bytes) override;
  void download(void* host, const void* from, std::size_t bytes) override;
  void copy(void* to, const void* from, std::size_t bytes) override;
  void clear(void* at, std::size_t bytes) override;
  std::size_t large_product() const override { return 64; }
  std::size_t launched() const { return launched_; }

 protected:
  void launch(int kernel, std::size_t blocks, const void* arguments) override;
  void multiply(const cuda::Product& product) override;
  // All that is done to the memory: at once, in the order of the calls. A stream does it later; settle() waits for that.
  virtual void carry_out(std::function<void()> what) { what(); }
  virtual void settle() {}

 private:
  const std::uint64_t seed_;
  const bool ignores_sync_;
  std::size_t launched_ = 0;
  std::set<void*> held_;
};

}  // namespace tutti::trainer::test
