// Runs lowered calls on one GPU. It owns the GPU's mailboxes and the mappings of its peers'
// mailboxes, and launches the kernels. In a communicator whose GPUs access each other's memory,
// each rank has one Executor.
//
// Calls of one communicator run one after another on the GPU, even on different streams, because
// they share the communicator's mailboxes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/cuda/device.h"
#include "base/cuda/memory.h"
#include "base/cuda/module.h"
#include "base/cuda/peer_memory.h"
#include "base/cuda/stream.h"
#include "base/dtype.h"
#include "collectives/gpu/agreement.h"
#include "collectives/gpu/call.h"
#include "collectives/gpu/lower.h"
#include "collectives/gpu/windows.h"

namespace tutti::gpu {

// A call in device memory, which can be launched any number of times. It must outlive its launches
// or be passed to Executor::retire().
class DeviceCall {
 public:
  // Returns true if the call lends messages; then it can be launched only with buffers in windows.
  bool lends() const { return lends_; }
  // Returns true if the call was captured, so that a graph may launch it at any time.
  bool is_captured() const { return is_captured_; }

 private:
  friend class Executor;
  explicit DeviceCall(cuda::DeviceMemory tables) : tables_(std::move(tables)) {}

  cuda::DeviceMemory tables_;
  Launch launch_;  // complete except for the buffers
  bool lends_ = false;
  bool is_captured_ = false;
  cuda::CUfunction function_ = nullptr;
  cuda::Grid grid_;
};

// Runs the calls of one rank. Not thread-safe except stop() and mismatch().
class Executor {
 public:
  // Allocates the mailboxes. `device`: this rank's GPU. Throws if the build has no kernels for this
  // GPU. Call connect() next.
  Executor(int rank, int ranks, int device, const MailboxShape& shape);
  // Maps the peers' mailboxes. Collective. Throws on all ranks if one cannot access another's
  // memory; the error of the rank that noticed it states the reason.
  void connect(const Exchange& exchange);

  const MailboxShape& shape() const { return shape_; }
  std::shared_ptr<DeviceCall> prepare(const LoweredCall& lowered, DType dtype);
  // Enqueues the kernel on the stream and returns. The buffers are device or pinned memory.
  void launch(DeviceCall& call, const std::byte* input, std::byte* output, cuda::CUstream stream,
              const LentBuffers& lent = {});
  // Takes calls that will not be launched again. Their memory is reused for later calls once the
  // launches so far have ended; freeing it would wait for all kernels, and those wait for other
  // ranks. Captured calls are kept during the lifetime of this object.
  void retire(std::vector<std::shared_ptr<DeviceCall>> calls);

  // Returns the windows of the communicator. A call whose buffers are in windows can lend its
  // messages instead of copying them into slots.
  const std::shared_ptr<Windows>& windows() const { return windows_; }

  // Blocks until the last launch that was not captured has ended.
  void drain();

  // Terminates all present and future kernels of this rank, whatever they wait for. The contents of
  // their buffers are then undefined. Thread-safe.
  void stop();
  // Returns 0, or 1 + the peer whose message belonged to another call; this rank's kernels have
  // then stopped.
  uint64_t mismatch() const;

 private:
  struct Retired {
    cuda::Event ended;
    std::vector<std::shared_ptr<DeviceCall>> calls;
  };

  void reach(int peer, const cuda::ExportedMemory& theirs);
  cuda::DeviceMemory memory_for_tables(size_t bytes);
  void grow_scratch(size_t bytes);

  const int rank_;
  const int ranks_;
  const MailboxShape shape_;
  const cuda::Context context_;
  const std::shared_ptr<const cuda::Module> module_;  // shared by the context's executors
  cuda::Stream own_stream_;
  cuda::PinnedMemory words_;  // words `stop` and `mismatch`
  cuda::SharedMemory mailboxes_;
  cuda::DeviceMemory progress_;
  cuda::DeviceMemory peers_;  // PeerMemory of each rank
  std::vector<cuda::ImportedMemory> imported_;
  std::vector<PeerMemory> reached_;  // host copy of peers_
  const cuda::Stream retiring_;
  std::vector<Retired> retired_;
  std::vector<std::shared_ptr<DeviceCall>> captured_;       // retired captured calls
  std::multimap<size_t, cuda::DeviceMemory> spare_tables_;  // unused memory for tables, by size
  // Scratch memory. New launches use the last element; captured calls may still use the others.
  std::vector<cuda::DeviceMemory> scratch_;
  const std::shared_ptr<Windows> windows_;
  cuda::CallOrder order_;
};

}  // namespace tutti::gpu
