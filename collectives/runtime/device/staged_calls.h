// Calls on memory of GPUs that go through the host's memory, and so over every transport, with
// every operator, and as messages between two ranks:
//
//     stream          copy to pinned memory - hand over - wait for a word ... - copy back
//     proxy thread                                   start the host's call ... - set the word
//
// No kernel runs, and nobody blocks: the proxy thread has any number of calls under way. A message
// is sent, for its stream, as soon as it is in pinned memory.
//
// Pinned memory is kept for calls to come, and that of captured calls as long as the communicator
// lives, for nobody tells when a graph is gone. CUDA knows nothing of a stream that waits for a
// word: it may run other streams after it, where there are more than a GPU has queues (8, or
// CUDA_DEVICE_MAX_CONNECTIONS).
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
  // Starts a call on the host's memory.
  using Start = std::function<Work(const Request& request, const CallOptions& options)>;

  // `failed`: hears of calls that failed, in the proxy thread. After an abort all do, at once.
  StagedCalls(int device, Start start, std::function<void(const Error&)> failed);
  ~StagedCalls();
  StagedCalls(const StagedCalls&) = delete;
  StagedCalls& operator=(const StagedCalls&) = delete;

  // Returns when the call is in the stream. The request is complete(). One thread at a time.
  void run(const Request& request, const CallOptions& options, cuda::CUstream stream);
  // Returns when all calls have ended that are not in graphs, and the messages of those that are.
  // Else streams may have calls to hand over yet: then this must stay after end().
  void drain();
  // Nothing is called any more, and streams wait for nothing.
  void end();

 private:
  // A call's copy in pinned memory: a word, the input, the output.
  struct Stage {
    Stage(StagedCalls& owner, const cuda::Context& context, size_t bytes)
        : owner(owner), memory(context, bytes), copied(context) {}

    uint32_t& word() const { return *reinterpret_cast<uint32_t*>(memory.data()); }
    bool is_free() const {
      return !taken && !captured && !on_host.load(std::memory_order_acquire) && copied.is_done();
    }

    StagedCalls& owner;
    cuda::PinnedMemory memory;
    cuda::Event copied;  // the last that its stream does with it
    bool taken = false;  // by the call that is being put into its stream
    bool captured = false;
    std::atomic<bool> on_host{false};  // the host's call has not ended
    Request request;                   // on that memory
    std::string algorithm;
    CallOptions options;
  };
  struct UnderWay {
    Stage* stage;
    Work work;
  };

  Stage& take_stage(size_t bytes);
  Stage& prepare(const Request& request, const CallOptions& options);
  static void bring(const Request& request, Stage& stage, cuda::CUstream stream);
  static void fetch(const Request& request, Stage& stage, cuda::CUstream stream);
  static void wait_for_host(const Stage& stage, cuda::CUstream stream);
  static void hand_over(void* stage);
  void serve(const std::stop_token& end);
  void take_new(const std::stop_token& end);
  void wait_a_turn();
  void begin(Stage& stage);
  bool look_after(UnderWay& call);
  void finish(Stage& stage, const Error* error);
  static void release(Stage& stage);

  const cuda::Context context_;
  const Start start_;
  const std::function<void(const Error&)> failed_;
  std::vector<std::unique_ptr<Stage>> stages_;
  cuda::CallOrder order_;

  std::mutex mutex_;
  std::condition_variable_any handed_over_;
  std::deque<Stage*> new_;  // guarded by mutex_, as is:
  bool is_over_ = false;

  std::list<UnderWay> under_way_;  // the proxy thread's
  std::jthread proxy_;             // last: it uses the rest
};

}  // namespace tutti::internal
