// Error feedback: the part of a step's gradients that was not sent is added to the next step's
// gradients.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "training/core/layout.h"
#include "training/parallel/data_parallel.h"

namespace tutti::training {

// Throws Error(invalid_argument) for gradients in f16: the loss scale changes from step to step, so
// errors of one step cannot be added to the next. `what`: the compression, for the message.
void check_error_feedback(std::string_view what, DType gradients);

// This rank's errors of one bucket, one per element. Only the sum of all ranks' errors matters, so
// a run that resumes on another number of ranks divides that sum among its ranks.
class BucketErrors {
 public:
  BucketErrors(const Layout& layout, const std::vector<ParameterSpec>& specs, size_t bucket);

  std::vector<float>& values() { return values_; }
  size_t size() const { return values_.size(); }
  // Adds `gradients` to the errors, after converting them to f32 in `scratch` (size() values).
  void add_gradients(Tensor gradients, std::span<float> scratch);
  // Appends the errors of each parameter, named "PREFIX.PARAMETER".
  void append_states(const std::string& prefix, std::vector<HookState>& states);

 private:
  struct Named {
    std::string name;
    Slot slot;
  };
  std::vector<Named> parameters_;
  std::vector<float> values_;
};

// Returns a view of the values as a 1 x n tensor of f32.
Tensor f32_row(std::span<float> values);

}  // namespace tutti::training
