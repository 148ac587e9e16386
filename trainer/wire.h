#pragma once
// The trainer's view of a communicator: the collectives that it uses, with their time and bytes counted. Nothing moves in
// a world of one rank. Failures are thrown; those of exchanges in a stream by the next one that is not, since a communicator that has
// failed stays so.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <tutti/tutti.h>
#include <vector>

#include "trainer/device.h"
#include "trainer/trace.h"

namespace tutti::trainer {

struct WireCount {
  std::size_t operations = 0;
  std::size_t bytes = 0;            // that this rank contributed or received, whichever is more, summed over operations
  double exposed_seconds = 0;       // this thread waited and did nothing else
  double seconds = 0;               // some operation was under way; what is not exposed went on beside computing
};

// One that was started. With a mark it goes on in the device's stream.
struct Exchange {
  Work work;
  Device::Mark mark;
};

class Wire {
 public:
  Wire(Communicator& communicator, Trace& trace, Device& device) : communicator_(communicator), trace_(trace), device_(device) {}
  int rank() const { return communicator_.rank(); }
  int rank_count() const { return communicator_.rank_count(); }
  // For what is exchanged often.
  Memory memory() const { return rank_count() > 1 ? Memory::shared : Memory::own; }

  // All in place, in the device's memory. `counts`: elements of each rank's block; blocks lie one behind another at `data`.
  // bf16: additions are f32; a partial sum that travels is rounded, once for each hop that the chosen algorithm gives it.
  Exchange sum(const std::string& name, void* data, std::size_t count, DataType type = DataType::f32);
  // This rank's block gets the sum.
  Exchange sum_blocks(const std::string& name, void* data, const std::vector<std::size_t>& counts, DataType type = DataType::f32);
  Exchange gather_blocks(const std::string& name, void* data, const std::vector<std::size_t>& counts, DataType type = DataType::f32);
  // In the host's memory.
  Exchange gather_host_blocks(const std::string& name, float* data, const std::vector<std::size_t>& counts);
  Exchange broadcast(const std::string& name, void* data, std::size_t bytes, int root);
  Exchange swap(const std::string& name, const float* input, const std::vector<std::size_t>& sends, float* output,
            const std::vector<std::size_t>& receives);
  // Blocks until done. Sums of doubles are exact where all ranks but one hold 0.
  void sum_now(std::vector<double>& values);
  std::vector<std::uint64_t> gather_now(const std::vector<std::uint64_t>& values);      // rank by rank, equally many each
  // On the host until it is done. In a stream: what is calculated from now on comes behind it.
  void wait(Exchange& exchange);

  WireCount take_count();           // since the last call

 private:
  // When operations were under way. They end on any thread, after a failure even when there is no Wire any more.
  class Flight {
   public:
    void begin(Trace::Time now);
    void end(Trace::Time now);
    double take(Trace::Time now);

   private:
    std::mutex mutex_;
    std::size_t under_way_ = 0;
    Trace::Time since_;
    double seconds_ = 0;
  };
  Exchange gather(const std::string& name, void* data, const std::vector<std::size_t>& counts, DataType type, DeviceStream stream);
  Exchange started(const std::string& name, std::size_t bytes, Work work, bool in_stream = false);
  Communicator& communicator_;
  Trace& trace_;
  Device& device_;
  WireCount count_;
  const std::shared_ptr<Flight> flight_ = std::make_shared<Flight>();
};

}  // namespace tutti::trainer
