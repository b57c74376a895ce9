// Executes a rank's part of a plan: computes its entries in order, overlapped with messages to and
// from neighbouring stages.
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

// Computation of a rank: its chunks of a model, or a stand-in for them.
class StageWork {
 public:
  virtual ~StageWork() = default;

  // Type, rows and columns of a chunk's output for a micro-batch; `data` is unspecified.
  virtual Tensor shape_after(int chunk, int micro_batch) const = 0;

  // The following functions get the plan's action: entry, slot, version. forward() returns the
  // output, valid until the slot's backward (forward-only tables: until the next call).
  virtual Tensor forward(const Action& action, ConstTensor input) = 0;
  // Returns the gradient of the input, valid until the next call. If backward is split,
  // backward_weight() may read `output_gradient` again.
  virtual Tensor backward(const Action& action, ConstTensor output_gradient) = 0;
  virtual void backward_weight(const Action& action) = 0;
  // Updates the weights to action.version.
  virtual void update(const Action& action) {}
};

// Executor of one rank. Used by one thread at a time.
class Executor {
 public:
  // `boundary` reaches the other ranks of the pipeline.
  explicit Executor(Boundary boundary);
  // Waits for messages in flight; after an error it aborts the pipeline first.
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Collective: every rank of the pipeline runs its part of the same plan, which must have passed
  // check(). Throws what `stage` throws, and the communicator's errors with the position added:
  // this rank, its stage and micro-batch, and what it needed from which rank. An error of this
  // rank's own, such as bad input, aborts the other ranks of the pipeline with its cause.
  void run(const Plan& plan, StageWork& stage);

  // Makes progress on messages; to be called now and then while a stage computes.
  void poll();

  // Records spans of entries, and of waiting for other stages. The trace must outlive this.
  void record(Trace& trace) { trace_ = &trace; }

  // Time that this rank waited for other stages, since construction.
  std::chrono::nanoseconds waited() const { return waited_; }
  int64_t bytes_sent() const { return boundary_.bytes_sent(); }
  // Bytes of message buffers. They are the library's (Communicator::allocate), so that messages
  // progress without help from the CPU.
  int64_t buffer_bytes() const { return pool_.bytes(); }
  // Maximum number of micro-batches (of any chunk) whose activations were kept at once.
  int most_activations() const { return most_activations_; }

 private:
  // The input of an entry: received, or computed on this rank.
  struct Held {
    Tensor tensor;
    bool pooled = false;
    bool pending = false;
    Boundary::Transfer transfer;
  };
  struct Outgoing {
    Tensor tensor;  // from the pool
    Boundary::Transfer transfer;
  };
  using Place = std::pair<int, int>;  // micro-batch, chunk

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
  // Records a span from `start` until now, if a trace is kept.
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
  std::map<Place, Held> activations_;  // inputs of forward, by the chunk that needs them
  std::map<Place, Held> gradients_;    // gradients of outputs, by the chunk that needs them
  Tensor made_;                        // result of the last entry for another rank; from the pool
  std::deque<Outgoing> outgoing_;      // in the order of sending
  std::chrono::nanoseconds waited_{0};
  int activations_kept_ = 0;
  int most_activations_ = 0;
  Trace* trace_ = nullptr;
};

}  // namespace tutti::training::pipeline
