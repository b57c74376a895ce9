#include "training/parallel/hooks/warm_up.h"

#include <algorithm>
#include <utility>

#include "training/parallel/hooks/error_feedback.h"

namespace tutti::training {

int64_t StepCount::at(int bucket) {
  if (started_.contains(bucket)) end_step();
  started_.insert(bucket);
  return static_cast<int64_t>(before_);
}

void StepCount::end_step() {
  started_.clear();
  ++before_;
}

// Called between two steps, so the previous step has ended.
HookState StepCount::state(const std::string& name) {
  if (!started_.empty()) end_step();
  return {name, f32_row(std::span(&before_, 1)), RowKind::same};
}

void PlainSums::start(Communicator& communicator, int bucket, Tensor gradients) {
  const auto index = static_cast<size_t>(bucket);
  works_.resize(std::max(works_.size(), index + 1));
  const Buffer buffer = as_buffer(gradients);
  works_[index] = communicator.all_reduce_async(as_const(buffer), buffer);
}

WarmUp::WarmUp(int64_t steps, std::unique_ptr<CommunicationHook> hook)
    : steps_(steps), hook_(std::move(hook)) {}

void WarmUp::start(Communicator& communicator, int bucket, Tensor gradients) {
  plain_.resize(std::max(plain_.size(), static_cast<size_t>(bucket) + 1));
  const bool plain = count_.at(bucket) < steps_;
  plain_[static_cast<size_t>(bucket)] = plain;
  if (plain) return sums_.start(communicator, bucket, gradients);
  hook_->start(communicator, bucket, gradients);
}

void WarmUp::finish(int bucket, Tensor gradients) {
  if (is_plain(bucket)) return sums_.finish(bucket);
  hook_->finish(bucket, gradients);
}

bool WarmUp::test(int bucket) {
  return is_plain(bucket) ? sums_.test(bucket) : hook_->test(bucket);
}

std::vector<HookState> WarmUp::states(Communicator& communicator, DType gradients) {
  std::vector<HookState> states = hook_->states(communicator, gradients);
  states.push_back(count_.state("warm_up.steps"));
  return states;
}

int64_t WarmUp::payload_bytes(int bucket, Tensor gradients) const {
  return is_plain(bucket) ? static_cast<int64_t>(gradients.bytes())
                          : hook_->payload_bytes(bucket, gradients);
}

}  // namespace tutti::training
