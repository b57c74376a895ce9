#include "training/pipeline/executor.h"

#include <algorithm>
#include <exception>

#include "base/error.h"
#include "base/text.h"
#include "training/kernels/elementwise.h"
#include "training/pipeline/places.h"

namespace tutti::training::pipeline {
namespace {

using Clock = std::chrono::steady_clock;

// Maximum number of sent messages that are not received yet, in forward-only tables. Nothing else
// limits how far the first stages run ahead; a stage blocks when it exceeds this number.
// (Interleaved stages, which send in a ring, cannot all block, because at most 2p micro-batches are
// in flight: those of two groups.)
constexpr size_t kMostUntaken = 4;

}  // namespace

Executor::Executor(Boundary boundary) : boundary_(std::move(boundary)), pool_(boundary_.stages()) {}

Executor::~Executor() {
  const bool idle =
      outgoing_.empty() &&
      std::ranges::none_of(activations_, [](auto& at) { return at.second.pending; }) &&
      std::ranges::none_of(gradients_, [](auto& at) { return at.second.pending; });
  if (idle) return;
  // A run has failed, so peers may be gone.
  abort("a pipeline failed with an error");
  // The buffers must not be freed while another thread sends or receives in them.
  for (Outgoing& message : outgoing_) message.transfer.wait_for_abort();
  for (auto* held : {&activations_, &gradients_}) {
    for (auto& [place, input] : *held) {
      if (input.pending) input.transfer.wait_for_abort();
    }
  }
}

void Executor::run(const Plan& plan, StageWork& stage) {
  plan_ = &plan;
  stage_ = &stage;
  keeps_activations_ = std::ranges::any_of(plan.schedule.table, [](const auto& entries) {
    return std::ranges::any_of(entries, [](const Entry& e) { return e.kind != Kind::forward; });
  });
  activations_kept_ = 0;
  const RankPlan& own = plan.ranks[static_cast<size_t>(own_rank())];
  for (const Action& action : own.actions) {
    try {
      switch (action.kind) {
        case Action::Kind::receive:
          receive(action);
          break;
        case Action::Kind::compute:
          compute(action);
          break;
        case Action::Kind::send:
          send(action);
          break;
        case Action::Kind::update:
          stage.update(action);
          break;
      }
    } catch (const Error& error) {
      throw placed(error, action);
    } catch (const std::exception& error) {
      abort(cat(error.what(), " [", place_of(action, *plan_, boundary_.stages()), "]"));
      throw;
    }
  }
  try {
    while (!outgoing_.empty()) finish_first();
  } catch (const Error& error) {
    throw placed(error, own.actions.back());
  }
}

// Errors.

void Executor::abort(const std::string& reason) {
  try {
    boundary_.stages().abort(reason);
  } catch (const std::exception&) {
    // The communicator has already ended.
  }
}

PlacedError Executor::placed(const Error& error, const Action& action) {
  Communicator& stages = boundary_.stages();
  PlacedError placed(error, place_of(action, *plan_, stages, stages.member(error.rank())));
  if (!follows_from_other_rank(error.code())) abort(placed.what());
  return placed;
}

// Messages.

Tensor Executor::take(const Tensor& shape) {
  Tensor tensor = shape;
  tensor.stride = tensor.cols;
  tensor.data = pool_.acquire(tensor.bytes());
  return tensor;
}

Tensor Executor::take_copy(ConstTensor tensor) {
  const Tensor own =
      take(tensor_at(static_cast<void*>(nullptr), tensor.dtype, tensor.rows, tensor.cols));
  copy(tensor, own);
  return own;
}

void Executor::receive(const Action& action) {
  const Entry& entry = action.entry;
  const int chunk = entry.kind == Kind::forward ? entry.chunk - 1 : entry.chunk;
  Held held{.tensor = take(stage_->shape_after(chunk, entry.micro_batch)),
            .pooled = true,
            .pending = true};
  held.transfer = boundary_.receive(held.tensor, action.peer);
  inputs_of(entry.kind)[{entry.micro_batch, entry.chunk}] = std::move(held);
}

void Executor::send(const Action& action) {
  Outgoing message{.tensor = made_};
  message.transfer = boundary_.send(message.tensor, action.peer);
  outgoing_.push_back(std::move(message));
  made_ = {};
  if (!keeps_activations_ && outgoing_.size() > kMostUntaken) {
    finish_first();
    poll();
  }
}

void Executor::poll() {
  std::erase_if(outgoing_, [this](Outgoing& message) {
    if (!message.transfer.test()) return false;
    drop(message.tensor);
    return true;
  });
}

void Executor::finish_first() {
  const Clock::time_point start = Clock::now();
  Outgoing& message = outgoing_.front();
  message.transfer.wait();
  drop(message.tensor);
  outgoing_.pop_front();
  waited_ += Clock::now() - start;
}

ConstTensor Executor::await_input(const Action& action) {
  const Entry& entry = action.entry;
  if (!needs_input(plan_->schedule, entry)) return {};
  Held& held = inputs_of(entry.kind).at({entry.micro_batch, entry.chunk});
  if (!held.pending) return held.tensor;
  const Clock::time_point start = Clock::now();
  held.transfer.wait();
  held.pending = false;
  waited_ += Clock::now() - start;
  record_span("bubble before ", TraceCategory::bubble, entry, start);
  return held.tensor;
}

void Executor::record_span(const char* what, TraceCategory category, const Entry& entry,
                           Clock::time_point start) {
  if (trace_ == nullptr) return;
  trace_->add(
      {cat(what, to_string(entry, false)),
       category,
       start,
       Clock::now(),
       {{"stage", own_rank()}, {"micro_batch", entry.micro_batch}, {"chunk", entry.chunk}}});
}

void Executor::forget(std::map<Place, Held>& held, const Entry& entry) {
  const auto found = held.find({entry.micro_batch, entry.chunk});
  if (found == held.end()) return;
  if (found->second.pooled) drop(found->second.tensor);
  held.erase(found);
}

// Passes the result to an entry on this rank, or keeps it for a send. `stays`: true if the result's
// memory remains valid until that entry.
void Executor::hand_over(const Entry& made, Tensor tensor, bool stays) {
  const bool forward = made.kind == Kind::forward;
  const int to = forward ? made.chunk + 1 : made.chunk - 1;
  const bool here = plan_->rank_of(made.micro_batch, to) == own_rank();
  const bool copied = !here || !stays;
  if (copied) tensor = take_copy(tensor);
  if (here) {
    (forward ? activations_ : gradients_)[{made.micro_batch, to}] = {.tensor = tensor,
                                                                     .pooled = copied};
  } else {
    made_ = tensor;
  }
}

// Computing.

void Executor::count_activations(const Entry& entry) {
  if (!keeps_activations_) return;
  if (entry.kind == Kind::forward) {
    most_activations_ = std::max(most_activations_, ++activations_kept_);
  } else if (makes_weight_gradient(entry)) {
    --activations_kept_;
  }
}

void Executor::compute(const Action& action) {
  if (action.entry.kind == Kind::forward) {
    forward(action);
  } else {
    backward(action);
  }
  poll();
}

void Executor::forward(const Action& action) {
  const Entry& entry = action.entry;
  const ConstTensor input = await_input(action);
  count_activations(entry);
  const Clock::time_point start = Clock::now();
  const Tensor output = stage_->forward(action, input);
  record_span("", TraceCategory::compute, entry, start);
  if (entry.chunk + 1 < plan_->schedule.chunks) {
    hand_over(entry, output, keeps_activations_);
  }
  if (!keeps_activations_) forget(activations_, entry);
}

void Executor::backward(const Action& action) {
  const Entry& entry = action.entry;
  const ConstTensor gradient = await_input(action);
  const Clock::time_point start = Clock::now();
  if (entry.kind == Kind::backward_weight) {
    stage_->backward_weight(action);
  } else {
    const Tensor made = stage_->backward(action, gradient);
    if (entry.chunk > 0) hand_over(entry, made, false);
  }
  record_span("", TraceCategory::compute, entry, start);
  count_activations(entry);
  if (!makes_weight_gradient(entry)) return;
  forget(activations_, entry);
  forget(gradients_, entry);
}

}  // namespace tutti::training::pipeline
