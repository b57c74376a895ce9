// Runs a rank's part of a plan: computes its entries in order, while messages to and from the
// neighbouring stages travel.
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

// What a rank computes: its chunks of a model, or a stand-in for them.
class StageWork {
 public:
  virtual ~StageWork() = default;

  // The output of a chunk for a micro-batch: its type, rows and columns; `data` is not looked at.
  virtual Tensor shape_after(int chunk, int micro_batch) const = 0;

  // Each is told the plan's action: entry, slot, version.
  // The output is valid until the slot's backward (forward-only tables: until the next call).
  virtual Tensor forward(const Action& action, ConstTensor input) = 0;
  // The gradient of the input, valid until the next call. In two parts: backward_weight() may read
  // `output_gradient` again.
  virtual Tensor backward(const Action& action, ConstTensor output_gradient) = 0;
  virtual void backward_weight(const Action& action) = 0;
  // Weights change to action.version.
  virtual void update(const Action& action) {}
};

// Of one rank. Threads: one at a time.
class Executor {
 public:
  // `boundary` reaches the other ranks of the pipeline.
  explicit Executor(Boundary boundary);
  // Waits for what is under way; after an error the pipeline is aborted first.
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Collective: every rank of the pipeline runs its part of the same plan, which has passed
  // check(). Throws what `stage` throws and the communicator's errors, with the place added: this
  // rank, its stage and micro-batch, and what it needed from whoever is to blame. An error of this
  // rank's own, such as bad input, ends the other ranks of the pipeline with its cause.
  void run(const Plan& plan, StageWork& stage);

  // Moves messages; to be called now and then while a stage computes.
  void poll();

  // Spans of entries, and of waiting for other stages, are recorded. The trace outlives this.
  void record(Trace& trace) { trace_ = &trace; }

  // Time that this rank stood still for other stages, since construction.
  std::chrono::nanoseconds waited() const { return waited_; }
  int64_t bytes_sent() const { return boundary_.bytes_sent(); }
  // Memory of what comes from other stages and goes to them: the library's, so that a message needs
  // nobody's help on its way (Communicator::allocate).
  int64_t buffer_bytes() const { return pool_.bytes(); }
  // The most micro-batches (of any chunk) whose activations were kept at once.
  int most_activations() const { return most_activations_; }

 private:
  // What an entry needs: received, or made on this rank.
  struct Held {
    Tensor tensor;
    bool pooled = false;
    bool pending = false;
    Boundary::Transfer transfer;
  };
  struct Outgoing {
    Tensor tensor;  // of the pool
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
  // Up to now, if a trace is kept.
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
  std::map<Place, Held> activations_;  // inputs of forward, by the chunk they are for
  std::map<Place, Held> gradients_;    // of outputs, by the chunk they are for
  Tensor made_;                        // by the last entry, for another rank; of the pool
  std::deque<Outgoing> outgoing_;      // in the order of their sending
  std::chrono::nanoseconds waited_{0};
  int activations_kept_ = 0;
  int most_activations_ = 0;
  Trace* trace_ = nullptr;
};

}  // namespace tutti::training::pipeline
