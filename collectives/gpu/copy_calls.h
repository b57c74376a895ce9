// Calls that only move data, done by the GPU's copy engines while its processors compute. Each rank
// copies its blocks into the other ranks' windows. A kernel of one small block, whose messages
// carry the call's signature, checks that all ranks have reached this call. Streams wait for words
// in memory that report completed copies.
//
//     rank a's stream                                rank b's stream
//     kernel: signatures    ←───────────────────→    kernel: signatures
//     copies its block into b's window
//     writes done[a] of b   ───────────────────→     waits for done[a]
//
// The words count calls, so nothing is reset. A replayed graph would write and await the counts of
// its capture, so calls in graphs run as kernels.
//
// Ranks that share a GPU in one process share its context, whose streams are multiplexed onto few
// hardware queues: one rank's wait can block the copy that it waits for. Such ranks cannot use copy
// engines.
//
// (NCCL 2.28 has such collectives, "CE collectives".)
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/cuda/device.h"
#include "base/cuda/memory.h"
#include "base/cuda/peer_memory.h"
#include "base/cuda/stream.h"
#include "collectives/gpu/agreement.h"
#include "collectives/gpu/windows.h"
#include "collectives/request.h"

namespace tutti::gpu {

// The copy calls of one rank. Not thread-safe except stop().
class CopyCalls {
 public:
  // Function that enqueues work which ends once all ranks have reached a call with this signature,
  // and which detects a rank in another call.
  using Meet = std::function<void(uint64_t signature, cuda::CUstream stream)>;
  CopyCalls(int rank, int ranks, const cuda::Context& context, std::shared_ptr<Windows> windows,
            Meet meet);
  // Prepares copy calls among all ranks. Collective. Returns false on all ranks if two ranks share
  // a context; the ranks must then not use copy calls. Throws on all ranks if one cannot access
  // another's memory.
  bool connect(const Exchange& exchange);

  // Returns true if the call is supported. The result is equal on all ranks if the program follows
  // the rules of Communicator::register_window(). For all_gather, all_to_all and scatter the output
  // must be in a window, and for gather the input must be.
  bool can(const Request& request, cuda::CUstream stream) const;
  // Enqueues the call on the stream and returns.
  void run(const Request& request, cuda::CUstream stream);

  void drain();
  // Ends all waits. The contents of the calls' buffers are then undefined. Copies may still arrive,
  // so if ranks are threads of one process, all of them must have stopped before any window is
  // freed. Thread-safe.
  void stop();

 private:
  std::byte* window_of(int peer, const void* own, size_t bytes) const;
  uint64_t signature_of(const Request& request) const;
  void signal_done(int peer, cuda::CUstream stream);
  void await_done(int peer, cuda::CUstream stream);
  void push(const Request& request, cuda::CUstream stream);
  void scatter(const Request& request, cuda::CUstream stream);
  void gather(const Request& request, cuda::CUstream stream);

  const int rank_;
  const int ranks_;
  const cuda::Context context_;
  const std::shared_ptr<Windows> windows_;
  const Meet meet_;
  const cuda::Stream own_stream_;
  // One word per rank: the value of calls_ in the last call in which that rank completed its copies
  // to or from this rank.
  const cuda::SharedMemory signals_;
  std::vector<cuda::ImportedMemory> imported_;
  std::vector<std::byte*> signals_of_;  // by rank: its signals as mapped here
  cuda::CallOrder order_;
  std::atomic<uint32_t> calls_{0};
};

}  // namespace tutti::gpu
