#pragma once
// Communicator: a fixed set of ranks and the collective operations among them.
//
// Threads: every function may be called from any thread. All ranks must start the same operations in the same order on one
// communicator; send and recv are ordered per pair of ranks instead. Operations on different communicators are independent.
//
// Errors common to all operations, given by Work::wait(): invalid_argument (names argument, value and what was wanted;
// nothing was sent), invalid_state (after destroy or abort), mismatch (another rank made another call: both are named),
// peer_lost, timeout, network, aborted. After any of these but invalid_argument the communicator is broken: pending and
// later operations end with the first cause. Out-of-place inputs are intact after a failure; outputs are unspecified.
//
// Buffers: `count` is in elements of `type`. Pointers need no alignment. `input` and `output` may be the same place where
// "in place" is said below, and must not overlap otherwise. A count of 0 is valid and moves nothing. Memory of a GPU: with
// `stream` (device_stream.h); unsupported: no GPU, or a stream that is being captured into a graph.
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <tutti/device_stream.h>
#include <tutti/status.h>
#include <tutti/types.h>
#include <tutti/work.h>
#include <vector>

namespace tutti {

namespace comm { class Member; }

// Names a job that ranks are about to form: where to meet and its secret key. Plain bytes, to be sent to the other ranks by
// any means. The process that made it hosts the meeting point, from a background thread, until all ranks have met.
struct UniqueId {
  static constexpr std::size_t kBytes = 128;
  std::array<std::byte, kBytes> bytes{};
  bool operator==(const UniqueId&) const = default;
};

struct Options {
  // How long creation may wait for the other ranks. 0: TUTTI_INIT_TIMEOUT (default 120 s).
  std::chrono::milliseconds init_timeout{0};
  // How long an operation may wait for a rank that has not made the call. 0: TUTTI_ABSENT_TIMEOUT (default 30 minutes). TUTTI_TIMEOUT,
  // for ranks that do not answer, is never longer than this.
  std::chrono::milliseconds timeout{0};
  // Secret that all ranks of a job share. Empty: TUTTI_JOB_KEY; without one, a key derived from the address (and a warning).
  std::string job_key;
};

struct AllReduce {      // output[i] = op over ranks of input[i]. In place: input == output.
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;
  DataType type = DataType::f32;
  ReduceOp op = ReduceOp::sum;
  double factor = 1.0;  // premul_sum: this rank's factor, rounded to `type`; ignored otherwise
  DeviceStream stream;
  const void* factor_on_device = nullptr;  // with a stream, instead: where it lies, of `type`, when the stream comes there
};
struct ReduceScatter {  // input: rank_count blocks of `count`; output: this rank's block, reduced. In place: output == input + rank*count.
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;
  DataType type = DataType::f32;
  ReduceOp op = ReduceOp::sum;
  double factor = 1.0;
  DeviceStream stream;
  const void* factor_on_device = nullptr;
};
struct AllGather {      // output: rank_count blocks of `count`, block r from rank r. In place: input == output + rank*count.
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;
  DataType type = DataType::f32;
  DeviceStream stream;
};
struct Broadcast {      // output on every rank = input of root. Only root reads `input`. In place: input == output.
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;
  DataType type = DataType::f32;
  int root = 0;
  DeviceStream stream;
};
struct Reduce {         // output on root = op over ranks of input. Only root writes `output`. In place: input == output.
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;
  DataType type = DataType::f32;
  ReduceOp op = ReduceOp::sum;
  int root = 0;
  double factor = 1.0;
  DeviceStream stream;
  const void* factor_on_device = nullptr;
};
struct Gather {         // root's output: rank_count blocks of `count`. In place on root: input == output + root*count.
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;
  DataType type = DataType::f32;
  int root = 0;
  DeviceStream stream;
};
struct Scatter {        // root's input: rank_count blocks of `count`; each rank's output: its block. In place on root: output == input + root*count.
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;
  DataType type = DataType::f32;
  int root = 0;
  DeviceStream stream;
};
struct AllToAll {       // input block j goes to rank j; output block i came from rank i; blocks of `count`. In place: input == output.
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;
  DataType type = DataType::f32;
  DeviceStream stream;
};
// The v forms: blocks of different sizes. `counts` has one entry a rank; blocks lie one behind another unless `offsets`
// (in elements, one a rank, blocks must not overlap) says otherwise. all_gather_v and reduce_scatter_v: every rank passes the same counts.
struct AllGatherV {     // input: counts[rank] elements
  const void* input = nullptr;
  void* output = nullptr;
  std::vector<std::size_t> counts;
  std::vector<std::size_t> offsets;
  DataType type = DataType::f32;
  DeviceStream stream;
};
struct ReduceScatterV { // output: counts[rank] elements
  const void* input = nullptr;
  void* output = nullptr;
  std::vector<std::size_t> counts;
  std::vector<std::size_t> offsets;
  DataType type = DataType::f32;
  ReduceOp op = ReduceOp::sum;
  double factor = 1.0;
  DeviceStream stream;
};
struct AllToAllV {      // send_counts[j] elements go to rank j, recv_counts[i] come from rank i and must equal what i sends. Not in place.
  const void* input = nullptr;
  void* output = nullptr;
  std::vector<std::size_t> send_counts, recv_counts;
  std::vector<std::size_t> send_offsets, recv_offsets;
  DataType type = DataType::f32;
  DeviceStream stream;  // then on all ranks, or on none
};
struct Send {
  const void* input = nullptr;
  std::size_t count = 0;
  DataType type = DataType::f32;
  int peer = 0;         // sending to oneself is allowed; the matching recv must be started too, with a stream in the same group
  DeviceStream stream;
};
struct Recv {
  void* output = nullptr;
  std::size_t count = 0;
  DataType type = DataType::f32;
  int peer = 0;
  DeviceStream stream;
};

// What the planner chose for one operation.
struct Choice {
  std::string algorithm;   // a generator's name: "ring", "direct", ...; of kernels among GPUs "one-shot" or "two-shot"
  std::string transport;   // "shm", "tcp", "shm+tcp"; "self" for one rank; "gpu" for those kernels,
                           // "gpu+rdma" where RDMA devices move from GPU to GPU
  double seconds = 0;      // how long one such operation is predicted to take
};

// Movable handle. The last handle's end destroys: pending operations end with `aborted`, nothing waits for other ranks.
class Communicator {
 public:
  Communicator();       // empty: rank_count() is 0 and every operation gives invalid_state
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  ~Communicator();

  // Reads TUTTI_RANK/TUTTI_RANK_COUNT/TUTTI_ADDRESS, or torchrun's, Slurm's, Open MPI's, MPICH/PMI's or PMIx's names
  // (docs/launching.md); without any of them, a world of one rank. Blocks until all ranks have met.
  // invalid_argument (names variable and value), timeout (who is missing, where it was tried), mismatch, network.
  static Result<Communicator> from_environment(const Options& options = {});
  // `address`: "host:port" ("[v6]:port"); rank 0's process listens there. Same errors.
  static Result<Communicator> create(int rank, int rank_count, const std::string& address, const Options& options = {});
  static Result<Communicator> create(int rank, int rank_count, const UniqueId& id, const Options& options = {});
  // Opens a meeting point on this host. network, out_of_resources.
  static Result<UniqueId> make_unique_id();

  // Collective. Ranks with equal `color` form a new communicator, ordered by (key, old rank); a negative colour joins none
  // and gets an empty Communicator. Connections, memory and progress thread are shared with this one.
  Result<Communicator> split(int color, int key);

  // After a failure: the ranks that are left form a new communicator, in the old order; no rank is needed for that. All that live
  // must call it, once; whoever has not within `limit` (0: TUTTI_TIMEOUT, or a minute) is left out. Of a network that is cut in two
  // at most one side goes on: the larger half of the ranks that may still live. This communicator stays as it is; what was under
  // way on it has ended. Blocks. peer_lost: this side is the smaller one, or the others have left this rank out; invalid_state:
  // destroyed, or called before. `without`: ranks that are to go though they may live: they need not call, and do not count for the
  // halves. All give the same ones. invalid_argument: this rank, or no rank.
  Result<Communicator> shrink(std::chrono::milliseconds limit = std::chrono::milliseconds(0), const std::vector<int>& without = {});
  // Between operations: these ranks, in their order, and new ones behind them form a larger communicator. Collective; the new ranks
  // call create(rank, rank_count, id) with rank() from the old rank_count() on. `id` counts on rank 0 alone, who has made it and
  // given it to the new ones. This communicator stays as it is. invalid_argument: no more ranks than now; else as create.
  Result<Communicator> grow(int rank_count, const UniqueId& id, const Options& options = {});

  // ok, or the first cause: what every operation from now on ends with.
  Status status() const;

  int rank() const;
  int rank_count() const;
  int local_rank() const;        // index among the ranks of this host
  int local_rank_count() const;

  Work all_reduce(const AllReduce& call);
  Work reduce_scatter(const ReduceScatter& call);
  Work all_gather(const AllGather& call);
  Work broadcast(const Broadcast& call);
  Work reduce(const Reduce& call);
  Work gather(const Gather& call);
  Work scatter(const Scatter& call);
  Work all_to_all(const AllToAll& call);
  Work all_gather_v(const AllGatherV& call);
  Work reduce_scatter_v(const ReduceScatterV& call);
  Work all_to_all_v(const AllToAllV& call);
  Work barrier(DeviceStream stream = {});   // with a stream: it goes on when the streams of all have come
  Work send(const Send& call);
  Work recv(const Recv& call);

  // Collective, blocks: ranks that call on streams of GPUs find out whether they reach each other's memory, by writing and reading.
  // Where they do, collectives (not the _v forms) on streams are kernels from then on, all ranks make one on streams, or none, and
  // explain() speaks of those; where they do not, but RDMA devices come to it (GPUDirect), sends, receives and collectives
  // go straight between the GPUs; else nothing changes. Says which and why. unsupported: no GPU here; errors of an operation. Not inherited by split, shrink and grow.
  Result<std::string> use_gpu();

  // Between the two, operations on this communicator from this thread are gathered; end_group() starts them together and
  // gives one Work that completes when all have, with the first failure. The Works of the single calls stay valid. Calls on streams
  // go on at once, however many sends and receives there are; each of their streams goes on when all have ended. They are numbered
  // behind the group's other calls.
  void begin_group();
  Work end_group();

  // What would be used for this call now. invalid_argument.
  Result<Choice> explain(Collective what, std::size_t count, DataType type, ReduceOp op = ReduceOp::sum) const;

  // Bytes that the library holds for this process's rank: shared memory, landing buffers, schedules.
  std::size_t memory_bytes() const;

  // Ends all pending operations here and on the other ranks with {aborted, reason}; returns within milliseconds.
  void abort(const std::string& reason);
  // Local and bounded: waits at most `limit` for pending operations, then ends them with `aborted`. Idempotent.
  void destroy(std::chrono::milliseconds limit = std::chrono::milliseconds(0));

 private:
  explicit Communicator(std::shared_ptr<comm::Member> member);
  friend class comm::Member;
  std::shared_ptr<comm::Member> member_;
};

}  // namespace tutti
