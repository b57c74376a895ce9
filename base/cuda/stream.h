// The order of work on a GPU: streams, events, and graphs captured from streams.
//
// Every CUstream parameter accepts any stream of the caller: a cudaStream_t, 0 (the legacy stream),
// or per_thread_stream(). The stream's context must be current in the calling thread.
#pragma once

#include <cstdint>

#include "base/cleanup.h"
#include "base/cuda/abi.h"
#include "base/cuda/device.h"

namespace tutti::cuda {

// A stream owned by Tutti. It does not synchronise with the legacy stream.
class Stream {
 public:
  explicit Stream(const Context& context);
  CUstream handle() const { return handle_; }

 private:
  CUstream handle_ = nullptr;
  Cleanup destroy_;
};

void synchronize(CUstream stream);
bool is_done(CUstream stream);
// Calls `function` on a thread of the driver once all earlier work has completed. Later work waits
// until the function has returned. The function must not call CUDA. In a captured stream, each
// replay calls the function.
void call_on_host(CUstream stream, CUhostFn function, void* user_data);
// Makes later work on `stream` wait until the word at `device_word` is at least `least`. The word
// is in device memory, or in pinned memory at its device address.
void wait_for_word(CUstream stream, const uint32_t* device_word, uint32_t least);
// Writes `value` to the word at `device_word` once all earlier work on `stream` has completed and
// is visible to readers of the word. The word is in device memory of this device or of a peer that
// it can access, or in pinned memory at its device address.
void write_word(CUstream stream, uint32_t* device_word, uint32_t value);

// A point in a stream's work.
class Event {
 public:
  enum class Timing : bool { off, on };

  explicit Event(const Context& context, Timing timing = Timing::off);
  CUevent handle() const { return handle_; }

  void record(CUstream stream);
  void synchronize() const;
  bool is_done() const;  // also true if it was never recorded
  // Makes later work of `stream` wait for the recorded point.
  void hold(CUstream stream) const;
  float milliseconds_since(const Event& start) const;  // both events need timing and must be done

 private:
  CUevent handle_ = nullptr;
  Cleanup destroy_;
};

// Makes each call wait for the call before it, whichever streams the two are enqueued on. (The
// driver reuses stream handles, so equal handles do not prove one stream.) Captured calls are
// excluded: within a graph only the order of the captured streams applies, and launches of a graph
// run one after another.
class CallOrder {
 public:
  explicit CallOrder(const Context& context) : ended_(context) {}

  // Brackets the work that a call enqueues on the stream.
  void begin(CUstream stream);
  void end(CUstream stream);
  // Blocks until the last call that was not captured has completed.
  void drain() const;

 private:
  Event ended_;
  bool has_calls_ = false;
};

// A captured graph that can be launched repeatedly. Its launches run one after another.
class Graph {
 public:
  void launch(CUstream stream) const;

 private:
  friend class Capture;
  Graph(const Context& context, CUgraph captured);

  CUgraphExec handle_ = nullptr;
  Cleanup destroy_;
};

// Records the work that this thread enqueues on the stream while this object lives, instead of
// running it. Work that other streams enqueue after waiting for an event of this stream is recorded
// too; this stream must wait for those streams before end().
class Capture {
 public:
  Capture(const Context& context, CUstream stream);
  ~Capture();  // drops the recording unless end() returned it
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  Graph end();

 private:
  Context context_;
  CUstream stream_;
  bool is_over_ = false;
};

// While this object lives, this thread may allocate and synchronise although a stream is being
// captured. Use it for work that does not belong to the graph.
class BesideCaptures {
 public:
  BesideCaptures();
  ~BesideCaptures();
  BesideCaptures(const BesideCaptures&) = delete;
  BesideCaptures& operator=(const BesideCaptures&) = delete;

 private:
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

// Returns true if the stream is being captured by any user.
bool is_captured(CUstream stream);

}  // namespace tutti::cuda
