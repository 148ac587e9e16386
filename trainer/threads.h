#pragma once
// Threads: the cores of this rank, for loops whose parts are independent. Not a task system: one loop at a time, started from
// one thread, and no part may start another loop.
//
// What a loop computes must not depend on the number of threads: a part writes what no other part writes, in its own order.
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

namespace tutti::trainer {

class Threads {
 public:
  // `count` includes the calling thread. `split_products`: matrix products may be cut into parts, one a thread. The bits of a
  // product depend on how it was cut, so deterministic runs say false.
  explicit Threads(int count, bool split_products = true);
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;
  ~Threads();

  int count() const { return int(workers_.size()) + 1; }
  int product_parts() const { return split_products_ ? count() : 1; }

  // body(part) for each part below `parts`, in any order; returns when all have ended.
  template <class Body>
  void each(std::size_t parts, Body&& body) {
    run(parts, [](void* context, std::size_t part) { (*static_cast<std::remove_reference_t<Body>*>(context))(part); },
        const_cast<void*>(static_cast<const void*>(&body)));
  }

  // body(begin, end) over contiguous pieces of [0, n), each of at least `least` (but the last).
  template <class Body>
  void ranges(std::size_t n, std::size_t least, Body&& body) {
    const std::size_t wanted = (n + std::size_t(count()) - 1) / std::size_t(count());
    const std::size_t piece = wanted > least ? wanted : least;
    if (n > 0) each((n + piece - 1) / piece, [&](std::size_t i) { body(i * piece, i * piece + piece < n ? i * piece + piece : n); });
  }

 private:
  using Part = void (*)(void* context, std::size_t part);
  void run(std::size_t parts, Part call, void* context);
  void work();                // the life of a worker
  void take_parts();          // runs parts of the present loop until none is left

  const bool split_products_;
  std::atomic<std::uint32_t> loop_{0};        // number of the present loop; changes wake the workers
  std::atomic<std::size_t> next_{0};          // the first part that nobody took
  std::atomic<std::uint32_t> busy_{0};        // workers that have not seen the end of the present loop
  std::atomic<bool> ending_{false};
  std::size_t parts_ = 0;
  Part call_ = nullptr;
  void* context_ = nullptr;
  std::vector<std::thread> workers_;
};

}  // namespace tutti::trainer
