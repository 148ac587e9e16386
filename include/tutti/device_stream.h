#pragma once
// DeviceStream: the queue of a GPU in which an operation takes its turn.
namespace tutti {

// `.stream = s` in a call. Then the buffers may lie in the GPU's memory (or the host's), and the call returns at once:
// the operation starts when the stream reaches it, and the stream goes on when it is done, or has failed (then the Work
// says why, and the output is unspecified). Work::wait() is not needed for the order; it waits for the stream to have
// passed. Operations of one communicator on different streams run in the order of the calls.
struct DeviceStream {
  constexpr DeviceStream() = default;  // none: the buffers are the host's
  constexpr DeviceStream(void* of_cuda)
      : handle(of_cuda),
        given(true) {}  // NOLINT(google-explicit-constructor): a cudaStream_t; null: the default stream
  void* handle = nullptr;
  bool given = false;
};

}  // namespace tutti
