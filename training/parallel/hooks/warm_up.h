// Sends uncompressed gradients in the first steps, and compressed ones afterwards. Early gradients
// change fast, so errors that are fed back later would do the most harm in these steps (Lin et al.:
// Deep gradient compression, 2018, section 3.3).
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "training/parallel/data_parallel.h"

namespace tutti::training {

// Counts the steps that have begun: a bucket that starts for the second time belongs to a new step.
class StepCount {
 public:
  // Returns the index of the step in which this bucket starts, counted from 0.
  int64_t at(int bucket);
  HookState state(const std::string& name);

 private:
  void end_step();

  float before_ = 0;       // number of earlier steps, exact up to 2^24; part of checkpoints
  std::set<int> started_;  // buckets that have started in this step
};

// Sums buckets by all-reduce, as without a hook.
class PlainSums {
 public:
  void start(Communicator& communicator, int bucket, Tensor gradients);
  void finish(int bucket) { works_.at(static_cast<size_t>(bucket)).wait(); }
  bool test(int bucket) { return works_.at(static_cast<size_t>(bucket)).test(); }

 private:
  std::vector<Work> works_;
};

class WarmUp : public CommunicationHook {
 public:
  // Creates a hook that sums uncompressed gradients in the first `steps` steps, and uses `hook`
  // afterwards.
  WarmUp(int64_t steps, std::unique_ptr<CommunicationHook> hook);

  void start(Communicator& communicator, int bucket, Tensor gradients) override;
  void finish(int bucket, Tensor gradients) override;
  bool test(int bucket) override;
  bool remembers() const override { return hook_->remembers(); }
  bool decompresses_by_products() const override { return hook_->decompresses_by_products(); }
  std::vector<HookState> states(Communicator& communicator, DType gradients) override;
  int64_t bytes() const override { return hook_->bytes(); }
  int64_t payload_bytes(int bucket, Tensor gradients) const override;

 private:
  bool is_plain(int bucket) const { return plain_.at(static_cast<size_t>(bucket)); }

  const int64_t steps_;
  const std::unique_ptr<CommunicationHook> hook_;
  StepCount count_;
  PlainSums sums_;
  std::vector<bool> plain_;  // by bucket: true if its last sum was uncompressed
};

}  // namespace tutti::training
