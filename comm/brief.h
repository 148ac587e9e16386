#pragma once
// Brief: an operation so small that it may be over within the call that starts it. Its program sends what the rank has,
// needs one message of each peer and nothing in between, and its messages travel by wires that can be looked at
// (Connection::glance). Then no Operation and no Execution comes to be: each costs more than the exchange itself. What
// is not over after a few looks goes on as any other operation, with what was sent counted as sent.
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "comm/execution.h"

namespace tutti::comm {

class Brief {
 public:
  // Beyond, the bytes take longer than what this saves: of the messages of a step, unless each is as small as the second.
  static constexpr std::uint64_t kMostBytes = 16384, kAnyNumber = 4095;
  // For all calls of this shape, whatever their buffers. Null: the program, or the size, is none for it.
  static std::unique_ptr<Brief> of(std::shared_ptr<const Program> program, const Binding& shape);

  const std::shared_ptr<const Program>& program() const { return program_; }
  // Whether every peer is connected by a wire that can be looked at for messages of these sizes.
  bool fits(std::span<const Wire> wires) const;
  void begin();
  // Hands out every message. False: there is no room for all of them now; sent_to() tells how far it came.
  bool send(std::span<const Wire> wires, const Binding& binding);
  // To how many of its peers the step's message is on its way.
  std::uint32_t sent_to(std::uint32_t step) const;
  // Whether a message of each peer is there; where each lies is remembered for finish().
  bool look(std::span<const Wire> wires, const Binding& binding);
  // After look(): the result, and the peers' memory back to them.
  void finish(std::span<const Wire> wires, const Binding& binding);
  std::span<const int> senders() const { return senders_; }
  std::uint64_t moved_bytes() const { return moved_; }

 private:
  struct Place {
    algorithms::Space space = algorithms::Space::input;
    std::uint64_t offset = 0, bytes = 0;
  };
  struct Part {
    std::uint32_t step = 0;
    Place source, target;
    std::uint32_t sender = 0;            // receives: the first of its senders in senders_
  };
  explicit Brief(std::shared_ptr<const Program> program) : program_(std::move(program)) {}
  bool lay_out(const Binding& shape);
  const algorithms::Step& step(const Part& part) const { return program_->steps[part.step].step; }
  std::byte* at(const Place& place, const Binding& binding) const;
  void receive(const Part& part, const Binding& binding) const;
  void local(const Part& part, const Binding& binding) const;

  std::shared_ptr<const Program> program_;
  std::vector<Part> before_, receives_, after_;      // sends and copies; then what comes; then what is made of that
  std::vector<int> senders_;                         // of all receives
  std::vector<std::uint64_t> message_bytes_;         // from each of senders_
  std::vector<const std::byte*> arrived_;            // by senders_
  mutable std::vector<std::byte> scratch_;
  std::uint64_t moved_ = 0, largest_ = 1;            // bytes: of all; of a message, at least 1
  std::uint32_t sent_part_ = 0, sent_peers_ = 0;     // so many of before_, and so many peers of the next
};

}  // namespace tutti::comm
