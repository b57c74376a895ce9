// Calls that only move data, by the GPU's copy engines: the GPU's processors compute meanwhile.
// Each rank copies its blocks into the other ranks' windows. That all ranks are at this call is
// found out by a kernel of one small block, whose messages carry the call's signature; that copies
// are done is told by words in memory, for which streams wait.
//
//     rank a's stream                                rank b's stream
//     kernel: signatures    ←───────────────────→    kernel: signatures
//     copies its block into b's window
//     writes done[a] of b   ───────────────────→     waits for done[a]
//
// The words count calls, so nothing is reset. What is captured would count wrong when it is
// replayed: calls in graphs go by kernels.
//
// Ranks that share a GPU in one process share its context, whose streams take turns in few queues
// of the hardware: one rank's wait can stand before the copy that it waits for. They cannot make
// such calls.
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

// Of one rank of a communicator. Threads: one at a time, but for stop().
class CopyCalls {
 public:
  // Puts into the stream what ends once all ranks have come to a call of this signature; a rank
  // that comes to another call is found out there.
  using Meet = std::function<void(uint64_t signature, cuda::CUstream stream)>;
  CopyCalls(int rank, int ranks, const cuda::Context& context, std::shared_ptr<Windows> windows,
            Meet meet);
  // Collective. False on all ranks where two share a context: these must not make such calls.
  // Throws on all ranks where one does not reach another's memory.
  bool connect(const Exchange& exchange);

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
  std::byte* window_of(int peer, const void* own, size_t bytes) const;
  uint64_t signature_of(const Request& request) const;
  void tell_done(int peer, cuda::CUstream stream);
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
  const cuda::SharedMemory signals_;  // calls that each rank has done with this one
  std::vector<cuda::ImportedMemory> imported_;
  std::vector<std::byte*> signals_of_;  // by rank
  cuda::CallOrder order_;
  std::atomic<uint32_t> calls_{0};
};

}  // namespace tutti::gpu
