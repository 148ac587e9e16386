#pragma once
// One collective that all ranks of a crew make: what each gives and what each must get, told by plain loops over whole
// numbers that every element type holds exactly. Knows nothing of schedules or wires.
#include <cstddef>
#include <cstdint>
#include <vector>
#include <tutti/communicator.h>

#include "transport/sim/dice.h"

namespace tutti::sim {

struct Exchange {
  Collective what = Collective::all_reduce;   // send: to the rank `root` places on, and a recv from as far behind
  std::size_t count = 0;                      // of a block; ragged: at most
  DataType type = DataType::f32;
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  bool ragged = false;                        // the v form
  std::uint64_t salt = 0;                     // makes the values, the ragged sizes, and who works in place
  int ranks = 1;

  bool in_place(int rank) const;
  double factor(int rank) const { return op == ReduceOp::premul_sum ? 1.0 + rank % 2 : 1.0; }
  std::size_t block(int from, int to) const;  // elements that `from` has for `to` (or for all, or of all)
  std::vector<std::size_t> blocks_from(int rank) const;
  std::vector<std::size_t> blocks_to(int rank) const;
  // Elements, as numbers. Empty: nothing is read, or written.
  std::vector<double> input(int rank) const;
  std::vector<double> output(int rank) const;
};

// Any of them, of up to `most_bytes` of the largest buffer of a rank; sizes are uniform by magnitude.
Exchange any_exchange(Dice& dice, int ranks, std::size_t most_bytes);
std::vector<std::byte> encode(DataType type, const std::vector<double>& numbers);

// An exchange as one rank makes it: buffers, the call, and the comparison afterwards.
class Share {
 public:
  Share(const Exchange& exchange, int rank);
  // On a stream where one is given and the call can be on one.
  Work start(Communicator& communicator, DeviceStream stream = {});
  const Exchange& exchange() const { return exchange_; }
  bool right() const;             // the output is as it should be, and so is an input of its own
  bool input_intact() const;      // true where it works in place

 private:
  const Exchange exchange_;
  const int rank_;
  std::vector<std::byte> in_, out_;
  std::byte *input_ = nullptr, *output_ = nullptr;
};

}  // namespace tutti::sim
