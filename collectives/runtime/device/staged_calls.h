// Calls on GPU memory that go through host memory. They work over every transport, with every
// operator, and for messages between two ranks:
//
//     stream          copy to pinned memory - hand over - wait for a word ... - copy back
//     proxy thread                                   start the host's call ... - set the word
//
// No kernel runs and no thread blocks: the proxy thread has any number of calls in flight. A stream
// continues after a send as soon as the message is in pinned memory.
//
// Pinned memory is kept for later calls. Memory of captured calls is kept as long as the
// communicator lives, because there is no notification when a graph is destroyed. A stream that
// waits for a word occupies its hardware queue: if there are more streams than hardware queues (8,
// or CUDA_DEVICE_MAX_CONNECTIONS), CUDA may queue other streams behind the waiting one.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/cuda/device.h"
#include "base/cuda/memory.h"
#include "base/cuda/stream.h"
#include "collectives/communicator.h"
#include "collectives/request.h"

namespace tutti::internal {

class StagedCalls {
 public:
  // Function that starts a call on host memory.
  using Start = std::function<Work(const Request& request, const CallOptions& options)>;

  // Starts the proxy thread. It calls `failed` for failed calls. After an abort all calls fail at
  // once.
  StagedCalls(int device, Start start, std::function<void(const Error&)> failed);
  ~StagedCalls();
  StagedCalls(const StagedCalls&) = delete;
  StagedCalls& operator=(const StagedCalls&) = delete;

  // Enqueues the call on the stream and returns. The request is complete(). Not thread-safe.
  void run(const Request& request, const CallOptions& options, cuda::CUstream stream);
  // Blocks until all calls outside graphs, and the host's part of calls inside graphs, have ended.
  // Without drain(), streams may still submit calls, and this object must be kept alive after
  // end().
  void drain();
  // Stops the proxy thread and releases all waiting streams.
  void end();

 private:
  // A call's staging area in pinned memory: a word, the input, the output.
  struct Stage {
    Stage(StagedCalls& owner, const cuda::Context& context, size_t bytes)
        : owner(owner), memory(context, bytes), copied(context) {}

    uint32_t& word() const { return *reinterpret_cast<uint32_t*>(memory.data()); }
    bool is_free() const {
      return !taken && !captured && !on_host.load(std::memory_order_acquire) && copied.is_done();
    }

    StagedCalls& owner;
    cuda::PinnedMemory memory;
    cuda::Event copied;  // recorded after the last use by its stream
    bool taken = false;  // true: used by the call that is being enqueued
    bool captured = false;
    std::atomic<bool> on_host{false};  // true: the host's call has not ended
    Request request;                   // the call on pinned memory
    std::string algorithm;
    CallOptions options;
  };
  struct InFlight {
    Stage* stage;
    Work work;
  };

  Stage& take_stage(size_t bytes);
  Stage& prepare(const Request& request, const CallOptions& options);
  static void copy_to_stage(const Request& request, Stage& stage, cuda::CUstream stream);
  static void fetch(const Request& request, Stage& stage, cuda::CUstream stream);
  static void wait_for_host(const Stage& stage, cuda::CUstream stream);
  static void hand_over(void* stage);
  void serve(const std::stop_token& end);
  void take_new(const std::stop_token& end);
  void wait_a_turn();
  void begin(Stage& stage);
  bool advance(InFlight& call);
  void finish(Stage& stage, const Error* error);
  static void release(Stage& stage);

  const cuda::Context context_;
  const Start start_;
  const std::function<void(const Error&)> failed_;
  std::vector<std::unique_ptr<Stage>> stages_;
  cuda::CallOrder order_;

  std::mutex mutex_;
  std::condition_variable_any handed_over_;
  // Calls that the proxy thread has not taken yet. mutex_ guards new_ and is_over_.
  std::deque<Stage*> new_;
  bool is_over_ = false;

  std::list<InFlight> in_flight_;  // used by the proxy thread only
  std::jthread proxy_;             // last, because it uses the other members
};

}  // namespace tutti::internal
