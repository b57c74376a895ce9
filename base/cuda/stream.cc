#include "base/cuda/stream.h"

#include "base/cuda/api.h"
#include "base/cuda/memory.h"

namespace tutti::cuda {
namespace {

// Returns true on success, false if CUDA reports "not ready".
bool is_ready(const char* call, CUresult result) {
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY) throw failure(call, result);
  return result == CUDA_SUCCESS;
}

}  // namespace

Stream::Stream(const Context& context) {
  const CurrentContext current(context);
  api().stream_create(&handle_, CU_STREAM_NON_BLOCKING);
  destroy_ = freed_in(context, [stream = handle_] { api().stream_destroy.result(stream); });
}

void synchronize(CUstream stream) { api().stream_synchronize(stream); }

bool is_done(CUstream stream) {
  return is_ready(api().stream_query.name(), api().stream_query.result(stream));
}

void call_on_host(CUstream stream, CUhostFn function, void* user_data) {
  api().launch_host_func(stream, function, user_data);
}

void wait_for_word(CUstream stream, const uint32_t* device_word, uint32_t least) {
  api().stream_wait_value(stream, address(device_word), least, CU_STREAM_WAIT_VALUE_GEQ);
}

void write_word(CUstream stream, uint32_t* device_word, uint32_t value) {
  api().stream_write_value(stream, address(device_word), value, CU_STREAM_WRITE_VALUE_DEFAULT);
}

Event::Event(const Context& context, Timing timing) {
  const CurrentContext current(context);
  api().event_create(&handle_, timing == Timing::on ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING);
  destroy_ = freed_in(context, [event = handle_] { api().event_destroy.result(event); });
}

void Event::record(CUstream stream) { api().event_record(handle_, stream); }
void Event::synchronize() const { api().event_synchronize(handle_); }

bool Event::is_done() const {
  return is_ready(api().event_query.name(), api().event_query.result(handle_));
}

void Event::hold(CUstream stream) const { api().stream_wait_event(stream, handle_, 0); }

float Event::milliseconds_since(const Event& start) const {
  float milliseconds = 0;
  api().event_elapsed_time(&milliseconds, start.handle_, handle_);
  return milliseconds;
}

void CallOrder::begin(CUstream stream) {
  if (has_calls_ && !is_captured(stream)) ended_.hold(stream);
}

void CallOrder::end(CUstream stream) {
  if (is_captured(stream)) return;
  ended_.record(stream);
  has_calls_ = true;
}

void CallOrder::drain() const {
  if (has_calls_) ended_.synchronize();
}

Graph::Graph(const Context& context, CUgraph captured) {
  api().graph_instantiate(&handle_, captured, 0);
  destroy_ = freed_in(context, [graph = handle_] { api().graph_exec_destroy.result(graph); });
}

void Graph::launch(CUstream stream) const { api().graph_launch(handle_, stream); }

Capture::Capture(const Context& context, CUstream stream) : context_(context), stream_(stream) {
  api().stream_begin_capture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}

Capture::~Capture() {
  if (is_over_) return;
  CUgraph dropped = nullptr;
  api().stream_end_capture.result(stream_, &dropped);
  if (dropped != nullptr) api().graph_destroy.result(dropped);
}

Graph Capture::end() {
  CUgraph captured = nullptr;
  api().stream_end_capture(stream_, &captured);
  is_over_ = true;
  const Cleanup destroy([captured] { api().graph_destroy.result(captured); });
  return Graph(context_, captured);
}

BesideCaptures::BesideCaptures() { api().thread_exchange_capture_mode(&mode_); }
BesideCaptures::~BesideCaptures() { api().thread_exchange_capture_mode.result(&mode_); }

bool is_captured(CUstream stream) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  api().stream_is_capturing(stream, &status);
  return status != CU_STREAM_CAPTURE_STATUS_NONE;
}

}  // namespace tutti::cuda
