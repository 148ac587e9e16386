#include "tests/cuda/emulation.h"

#include <stdexcept>

namespace tutti::emulation {
namespace {
constexpr std::size_t kStackBytes = 64 << 10;
constexpr std::uint64_t kMostTurns = 50'000'000;  // nobody gets there who is not stuck
}  // namespace

bool Thread::any(bool flag) {
  if (emulator_->ignores_sync) return flag;
  Block& block = *shared_;
  block.flag |= flag;
  const std::uint64_t round = block.round;
  if (++block.arrived == block.size) {
    block.result = block.flag;
    block.flag = false;
    block.arrived = 0;
    ++block.round;
    emulator_->give_way();
  } else {
    emulator_->give_way([&block, round] { return block.round != round; });
  }
  return block.result;  // nobody ends the next round before all have left this one
}

std::uint32_t Thread::acquire(const std::uint32_t* word) {
  emulator_->give_way();
  const std::uint32_t value = __atomic_load_n(word, __ATOMIC_ACQUIRE);  // other emulators write, too
  return emulator_->ignores_acquire ? value | 0x10000 : value;          // whatever is waited for is there
}

void Thread::release(std::uint32_t* word, std::uint32_t value) {
  emulator_->give_way();
  __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

void Thread::pause() { emulator_->give_way(); }

void Emulator::enter(unsigned high, unsigned low) {
  auto* emulator = reinterpret_cast<Emulator*>(std::uintptr_t(high) << 32 | low);
  Fiber* self = emulator->current_;
  self->body(self->thread);
  self->ended = true;
  swapcontext(&self->context, &emulator->scheduler_);
}

void Emulator::give_way(std::function<bool()> until) {
  Fiber* self = current_;
  self->ready = std::move(until);
  swapcontext(&self->context, &scheduler_);
}

// Apart: getcontext may return twice, so no loop's variables shall live around it.
[[gnu::noinline]] void Emulator::make_context(Fiber& fiber) {
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = fiber.stack.get();
  fiber.context.uc_stack.ss_size = kStackBytes;
  fiber.context.uc_link = nullptr;
  const auto self = std::uintptr_t(this);
  makecontext(&fiber.context, reinterpret_cast<void (*)()>(&Emulator::enter), 2, unsigned(self >> 32),
              unsigned(self));
}

void Emulator::add(const Grid& grid, std::function<void(Thread&)> body) {
  for (int b = 0; b < grid.blocks; ++b) {
    Block& block = *blocks_.emplace_back(std::make_unique<Block>());
    block.size = std::size_t(grid.threads);
    for (int t = 0; t < grid.threads; ++t) {
      Fiber& fiber = *fibers_.emplace_back(std::make_unique<Fiber>());
      fiber.stack = std::make_unique_for_overwrite<std::byte[]>(kStackBytes);
      fiber.body = body;
      fiber.grid = grids_;
      Thread& thread = fiber.thread;
      thread.emulator_ = this;
      thread.shared_ = &block;
      thread.block_ = std::size_t(b), thread.blocks_ = std::size_t(grid.blocks);
      thread.in_block_ = std::size_t(t), thread.block_size_ = std::size_t(grid.threads);
      make_context(fiber);
    }
  }
  ++grids_;
}

// One that can go on. Mostly of one grid for a while, so that ranks are far apart.
std::size_t Emulator::choose(std::size_t count) {
  constexpr std::uint64_t kWhile = 256;
  if (random_() % kWhile == 0) favourite_ = std::size_t(random_());
  const bool any = random_() % 64 == 0;
  const std::size_t start = random_() % count;
  std::size_t found = count;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t at = (start + i) % count;
    const Fiber& fiber = *fibers_[at];
    if (fiber.ready && !fiber.ready()) continue;
    if (any || fiber.grid == favourite_ % grids_) return at;
    if (found == count) found = at;
  }
  if (found == count) throw std::runtime_error("all emulated threads wait for each other");
  return found;
}

bool Emulator::turn() {
  if (ended_ == fibers_.size()) return false;
  ++turns_;
  const std::size_t left = fibers_.size() - ended_, at = choose(left);
  current_ = fibers_[at].get();
  current_->ready = nullptr;
  swapcontext(&scheduler_, &current_->context);
  if (!current_->ended) return true;
  std::swap(fibers_[at], fibers_[left - 1]);
  if (++ended_ < fibers_.size()) return true;
  fibers_.clear();
  blocks_.clear();
  grids_ = ended_ = 0;
  return false;
}

void Emulator::run(std::uint64_t steps, const std::function<void()>& then) {
  do {
    if (turns_ == steps && then) then();
    if (turns_ > kMostTurns) throw std::runtime_error("the emulated kernels do not end");
  } while (turn());
}

bool Emulator::run_for(std::uint64_t turns) {
  for (std::uint64_t i = 0; i < turns; ++i)
    if (!turn()) return true;
  return false;
}

}  // namespace tutti::emulation
