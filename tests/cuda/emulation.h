#pragma once
// A GPU for bodies of kernels/cuda: grids of threads as fibers on one thread of the processor. A fiber gives way where
// threads of a GPU could see each other (sync, any, acquire, release, pause), and which goes on is drawn from a seed:
// so orders are as adverse as they come and a failing one can be replayed. Several grids run at once, as kernels of
// several ranks do.
//
// It has one order of memory: what a fiber writes is seen at once. Missing fences do not show here; missing waits do.
#include <ucontext.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <vector>

namespace tutti::emulation {

class Emulator;

// A meeting of a block's threads: `round` counts those that are over.
struct Block {
  std::size_t size = 0, arrived = 0;
  std::uint64_t round = 0;
  bool flag = false, result = false;
};

class Thread {
 public:
  std::size_t index() const { return block_ * block_size_ + in_block_; }
  std::size_t count() const { return blocks_ * block_size_; }
  std::size_t block() const { return block_; }
  std::size_t in_block() const { return in_block_; }
  std::size_t block_size() const { return block_size_; }
  void sync() { any(false); }
  bool any(bool flag);
  std::uint32_t acquire(const std::uint32_t* word);
  void release(std::uint32_t* word, std::uint32_t value);
  void pause();

 private:
  friend class Emulator;
  Emulator* emulator_ = nullptr;
  Block* shared_ = nullptr;
  std::size_t block_ = 0, blocks_ = 1, in_block_ = 0, block_size_ = 1;
};

struct Grid {
  int blocks = 1, threads = 32;
};

class Emulator {
 public:
  explicit Emulator(std::uint64_t seed) : random_(seed) {}
  Emulator(const Emulator&) = delete;
  Emulator& operator=(const Emulator&) = delete;

  // `arguments` and `body` must live until run() returns.
  template <class Body>
  void launch(const Grid& grid, const typename Body::Arguments& arguments) {
    add(grid, [&arguments](Thread& thread) { Body{}(arguments, thread); });
  }
  void add(const Grid& grid, std::function<void(Thread&)> body);
  // Until all fibers have ended. After `steps` turns it calls `then` once (a host that sets a flag).
  void run(std::uint64_t steps = ~std::uint64_t(0), const std::function<void()>& then = {});
  // So many turns at most, for grids that wait for others elsewhere. Whether all fibers have ended.
  bool run_for(std::uint64_t turns);
  std::uint64_t turns() const { return turns_; }
  // Plants: waits that are not kept.
  bool ignores_sync = false, ignores_acquire = false;

 private:
  friend class Thread;
  struct Fiber {
    ucontext_t context;
    std::unique_ptr<std::byte[]> stack;
    Thread thread;
    std::function<void(Thread&)> body;
    std::function<bool()> ready;  // null: at any time
    std::size_t grid = 0;
    bool ended = false;
  };
  static void enter(unsigned high, unsigned low);
  bool turn();  // false: all have ended
  void make_context(Fiber& fiber);
  void give_way(std::function<bool()> until = {});
  std::size_t choose(std::size_t count);
  std::mt19937_64 random_;
  std::size_t grids_ = 0, favourite_ = 0;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::size_t ended_ = 0;  // of them, at the end
  std::vector<std::unique_ptr<Block>> blocks_;
  Fiber* current_ = nullptr;
  ucontext_t scheduler_{};
  std::uint64_t turns_ = 0;
};

// One grid on its own.
template <class Body>
void emulate(const Grid& grid, const typename Body::Arguments& arguments, std::uint64_t seed = 1) {
  Emulator emulator(seed);
  emulator.launch<Body>(grid, arguments);
  emulator.run();
}

}  // namespace tutti::emulation
