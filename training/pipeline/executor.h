// Executes a rank's part of a plan: computes its entries in order, and overlaps them with messages
// to and from neighbouring stages.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>

#include "base/error.h"
#include "training/core/trace.h"
#include "training/parallel/buffer_pool.h"
#include "training/pipeline/boundary.h"
#include "training/pipeline/places.h"
#include "training/pipeline/plan.h"

namespace tutti::training::pipeline {

// Interface of a rank's computation: its chunks of a model, or a substitute in tests and
// measurements.
class StageWork {
 public:
  virtual ~StageWork() = default;

  // Returns the type, rows and columns of a chunk's output for a micro-batch; `data` is
  // unspecified.
  virtual Tensor shape_after(int chunk, int micro_batch) const = 0;

  // Computes forward and returns the output. It is valid until the slot's backward or, if the table
  // has only forward entries, until the next call. `action`, here and below: the action of the plan
  // that is executed, which has the entry, the slot and the version of the weights.
  virtual Tensor forward(const Action& action, ConstTensor input) = 0;
  // Computes backward and returns the gradient of the input, valid until the next call. If backward
  // is split, backward_weight() may read `output_gradient` again.
  virtual Tensor backward(const Action& action, ConstTensor output_gradient) = 0;
  virtual void backward_weight(const Action& action) = 0;
  // Updates the weights to action.version.
  virtual void update(const Action& action) {}
};

// Executor of one rank. One thread at a time may use it.
class Executor {
 public:
  // Creates an executor; `boundary` connects it to the other ranks of the pipeline.
  explicit Executor(Boundary boundary);
  // If messages are still in flight, because run() has thrown an error, aborts the pipeline, and
  // waits until no thread uses their buffers.
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Collective: every rank of the pipeline runs its part of the same plan, which must have passed
  // check(). Throws what `stage` and the communicator throw. Adds the position to each Error: this
  // rank, its stage and micro-batch, and the result of another rank that it waited for (places.h).
  // An error of this rank, such as bad input, aborts the pipeline's other ranks and reports the
  // cause to them.
  void run(const Plan& plan, StageWork& stage);

  // Makes progress on messages, and releases the memory of sent ones. To be called now and then
  // while a stage computes.
  void poll();

  // Records a span for each entry, and for each wait for an input from another stage. `trace` must
  // outlive the executor.
  void record(Trace& trace) { trace_ = &trace; }

  // Returns the time that this rank has waited for other stages since construction.
  std::chrono::nanoseconds waited() const { return waited_; }
  int64_t bytes_sent() const { return boundary_.bytes_sent(); }
  // Returns the bytes of message buffers. Their memory comes from Communicator::allocate, so that
  // messages progress without help from the CPU.
  int64_t buffer_bytes() const { return pool_.bytes(); }
  // Returns the maximum number of activations that were kept at once, one per micro-batch and
  // chunk.
  int most_activations() const { return most_activations_; }

 private:
  // The input of an entry: either received, or computed on this rank.
  struct Held {
    Tensor tensor;
    bool pooled = false;   // true if the tensor's memory is from the pool
    bool pending = false;  // true until the received tensor is complete
    Boundary::Transfer transfer;
  };
  struct Outgoing {
    Tensor tensor;  // the sent tensor; its memory is from the pool
    Boundary::Transfer transfer;
  };
  using Place = std::pair<int, int>;  // a micro-batch and a chunk

  void receive(const Action& action);
  void compute(const Action& action);
  void forward(const Action& action);
  void backward(const Action& action);
  void send(const Action& action);
  void finish_first();

  std::map<Place, Held>& inputs_of(Kind kind) {
    return kind == Kind::forward ? activations_ : gradients_;
  }
  ConstTensor await_input(const Action& action);
  void hand_over(const Entry& made, Tensor tensor, bool stays);
  void forget(std::map<Place, Held>& held, const Entry& entry);
  void drop(Tensor tensor) { pool_.release(tensor.data, tensor.bytes()); }
  Tensor take_copy(ConstTensor tensor);
  Tensor take(const Tensor& shape);
  void count_activations(const Entry& entry);
  // Records a span from `start` until now, if there is a trace.
  void record_span(const char* what, TraceCategory category, const Entry& entry,
                   std::chrono::steady_clock::time_point start);
  int own_rank() { return boundary_.stages().rank(); }
  PlacedError placed(const Error& error, const Action& action);
  void abort(const std::string& reason);

  Boundary boundary_;
  BufferPool pool_;
  const Plan* plan_ = nullptr;
  StageWork* stage_ = nullptr;
  bool keeps_activations_ = true;
  std::map<Place, Held> activations_;  // inputs of forward, keyed by the entry that needs them
  std::map<Place, Held> gradients_;    // inputs of backward, keyed by the entry that needs them
  Tensor made_;  // result of the last entry, if another rank needs it; its memory is from the pool
  std::deque<Outgoing> outgoing_;  // messages in the order of sending
  std::chrono::nanoseconds waited_{0};
  int activations_kept_ = 0;
  int most_activations_ = 0;
  Trace* trace_ = nullptr;
};

}  // namespace tutti::training::pipeline
