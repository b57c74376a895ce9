// Runs lowered calls on one GPU: its mailboxes, those of its peers as it reaches them, and the
// launches. One for each rank of a communicator whose GPUs reach each other's memory.
//
// Calls of one communicator follow each other on the GPU, whatever streams they are put into: the
// kernels of a communicator share its mailboxes.
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

// A call in the device's memory, to be launched as often as one likes. It must outlive its
// launches, or be given to Executor::retire().
class DeviceCall {
 public:
  // Messages: only where the buffers are in windows can it be launched.
  bool lends() const { return lends_; }
  // A graph may launch it at any time.
  bool is_captured() const { return is_captured_; }

 private:
  friend class Executor;
  explicit DeviceCall(cuda::DeviceMemory tables) : tables_(std::move(tables)) {}

  cuda::DeviceMemory tables_;
  Launch launch_;  // all but the buffers
  bool lends_ = false;
  bool is_captured_ = false;
  cuda::CUfunction function_ = nullptr;
  cuda::Grid grid_;
};

// Threads: one at a time, but for stop() and mismatch().
class Executor {
 public:
  // `device`: this rank's. Throws where the build has no kernels for it. connect() comes next.
  Executor(int rank, int ranks, int device, const MailboxShape& shape);
  // Collective. Throws on all ranks where the memory of one is out of another's reach, with the
  // reason where that was seen.
  void connect(const Exchange& exchange);

  const MailboxShape& shape() const { return shape_; }
  std::shared_ptr<DeviceCall> prepare(const LoweredCall& lowered, DType dtype);
  // Returns when the kernel is in the stream. The buffers are the device's, or pinned.
  void launch(DeviceCall& call, const std::byte* input, std::byte* output, cuda::CUstream stream,
              const LentBuffers& lent = {});
  // Takes calls that will not be launched again. Their memory serves later calls once the launches
  // up to now have ended: to free it would wait for the kernels of all, and these for other ranks.
  // Captured calls are kept as long as this is.
  void retire(std::vector<std::shared_ptr<DeviceCall>> calls);

  // Where the buffers are in windows, which the call then needs no slots for.
  const std::shared_ptr<Windows>& windows() const { return windows_; }

  // Returns when the last launch that was not captured has ended.
  void drain();

  // Ends all kernels, this one's and those to come, whatever they wait for. Their buffers hold
  // anything then. Any thread.
  void stop();
  // 0, or 1 + the peer whose message belonged to another call: this rank's kernels have stopped.
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
  const std::shared_ptr<const cuda::Module> module_;  // of all executors of the context
  cuda::Stream own_stream_;
  cuda::PinnedMemory words_;  // `stop` and `mismatch`
  cuda::SharedMemory mailboxes_;
  cuda::DeviceMemory progress_;
  cuda::DeviceMemory peers_;  // PeerMemory of each rank
  std::vector<cuda::ImportedMemory> imported_;
  std::vector<PeerMemory> reached_;  // what peers_ is a copy of
  const cuda::Stream retiring_;
  std::vector<Retired> retired_;
  std::vector<std::shared_ptr<DeviceCall>> captured_;       // and retired
  std::multimap<size_t, cuda::DeviceMemory> spare_tables_;  // by size
  // The last one is used; the others may be, by captured calls.
  std::vector<cuda::DeviceMemory> scratch_;
  const std::shared_ptr<Windows> windows_;
  cuda::CallOrder order_;
};

}  // namespace tutti::gpu
