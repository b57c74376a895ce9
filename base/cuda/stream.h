// The order of work on a GPU: streams, events, and graphs captured from streams.
//
// A stream is a CUstream wherever it is used, so that a caller's own (a cudaStream_t; 0, or
// per_thread_stream()) will do. Its context is current in the thread.
#pragma once

#include <cstdint>

#include "base/cleanup.h"
#include "base/cuda/abi.h"
#include "base/cuda/device.h"

namespace tutti::cuda {

// One of our own, which does not wait for the legacy stream.
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
// Calls `function` in a thread of the driver's once all before it is done; what comes after waits.
// It must call nothing of CUDA. In a captured stream it is called at each replay.
void call_on_host(CUstream stream, CUhostFn function, void* user_data);
// What comes after waits until the word, of the device's memory or of pinned memory as the device
// has it, is `least` or more.
void wait_for_word(CUstream stream, const uint32_t* device_word, uint32_t least);
// Of the same kinds of memory, or another device's that this one reaches: once all before it is
// done, and seen by whoever sees the word.
void write_word(CUstream stream, uint32_t* device_word, uint32_t value);

// A point in a stream's work.
class Event {
 public:
  enum class Timing : bool { off, on };

  explicit Event(const Context& context, Timing timing = Timing::off);
  CUevent handle() const { return handle_; }

  void record(CUstream stream);
  void synchronize() const;
  bool is_done() const;  // also of one that was not recorded
  // What is put into `stream` from now on waits for what was recorded.
  void hold(CUstream stream) const;
  float milliseconds_since(const Event& start) const;  // both with timing, and done

 private:
  CUevent handle_ = nullptr;
  Cleanup destroy_;
};

// Calls that follow each other in whatever streams they are put into. (Also in equal handles: the
// driver gives them again.) What is captured follows what its graph has before it; the graph's
// launches follow each other as their streams do.
class CallOrder {
 public:
  explicit CallOrder(const Context& context) : ended_(context) {}

  // Around what a call puts into the stream.
  void begin(CUstream stream);
  void end(CUstream stream);
  // Returns when the last call that was not captured has ended.
  void drain() const;

 private:
  Event ended_;
  bool has_calls_ = false;
};

// Work that was captured, to be run again and again. Its launches follow each other.
class Graph {
 public:
  void launch(CUstream stream) const;

 private:
  friend class Capture;
  Graph(const Context& context, CUgraph captured);

  CUgraphExec handle_ = nullptr;
  Cleanup destroy_;
};

// While it lives, work put into the stream by this thread is not run but recorded; also that of
// other streams which wait for events of it, and which it has to wait for before the end.
class Capture {
 public:
  Capture(const Context& context, CUstream stream);
  ~Capture();  // drops what was captured, unless end() gave it
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  Graph end();

 private:
  Context context_;
  CUstream stream_;
  bool is_over_ = false;
};

// While it lives, this thread may allocate and wait although a stream is captured: for work that
// the graph has no part in.
class BesideCaptures {
 public:
  BesideCaptures();
  ~BesideCaptures();
  BesideCaptures(const BesideCaptures&) = delete;
  BesideCaptures& operator=(const BesideCaptures&) = delete;

 private:
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
};

// Whether the stream is being captured, by whomever.
bool is_captured(CUstream stream);

}  // namespace tutti::cuda
