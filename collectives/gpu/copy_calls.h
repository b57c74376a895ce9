// Calls that only move data, by the GPU's copy engines: no kernel runs, so all of its processors
// compute meanwhile. Each rank copies its blocks into the other ranks' windows; streams tell each
// other by words in memory when they may and when it is done.
//
//     rank a's stream                                rank b's stream
//     writes ready[a] of b  ───────────────────→     waits for ready[a]
//     waits for ready[b]    ←───────────────────     writes ready[b] of a
//     copies its block into b's window
//     writes done[a] of b   ───────────────────→     waits for done[a]
//
// The words count calls, so nothing is reset. What is captured would count wrong when it is
// replayed: calls in graphs go by kernels. Nothing finds out calls that do not fit together.
//
// (NCCL 2.28 has such collectives, "CE collectives".)
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/gpu/agreement.h"
#include "collectives/gpu/windows.h"
#include "collectives/request.h"
#include "transport/cuda/device.h"
#include "transport/cuda/memory.h"
#include "transport/cuda/peer_memory.h"
#include "transport/cuda/stream.h"

namespace tutti::gpu {

// Of one rank of a communicator. Threads: one at a time, but for stop().
class CopyCalls {
 public:
  CopyCalls(int rank, int ranks, const cuda::Context& context, std::shared_ptr<Windows> windows);
  // Collective. Throws on all ranks where one does not reach another's memory.
  void connect(const Exchange& exchange);

  // Whether the call can be made so: all ranks say alike, if they keep to the rules of windows.
  // all_gather, all_to_all and scatter need the output in a window, gather the input.
  bool can(const Request& request, cuda::CUstream stream) const;
  // Returns when the call is in the stream.
  void run(const Request& request, cuda::CUstream stream);

  void drain();
  // Ends all waits; what the calls' buffers hold then is anything, and copies still come: among
  // threads of one process windows must stay until all have ended. Any thread.
  void stop();

 private:
  enum class Word : size_t { ready, done };

  std::byte* window_of(int peer, const void* own, size_t bytes) const;
  uint32_t* word(std::byte* signals, Word which, int of) const;
  void tell(int peer, Word which, cuda::CUstream stream);
  void await(int peer, Word which, cuda::CUstream stream);
  void push(const Request& request, cuda::CUstream stream);
  void scatter(const Request& request, cuda::CUstream stream);
  void gather(const Request& request, cuda::CUstream stream);

  const int rank_;
  const int ranks_;
  const cuda::Context context_;
  const std::shared_ptr<Windows> windows_;
  const cuda::Stream own_stream_;
  const cuda::SharedMemory signals_;  // ready and done, of each rank
  std::vector<cuda::ImportedMemory> imported_;
  std::vector<std::byte*> signals_of_;  // by rank
  cuda::CallOrder order_;
  std::atomic<uint32_t> calls_{0};
};

}  // namespace tutti::gpu
