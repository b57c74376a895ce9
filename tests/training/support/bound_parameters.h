// A table's parameters and gradients in host memory, and a pass to run modules in.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/training/support/host_tensor.h"
#include "training/core/parameters.h"
#include "training/core/pass.h"

namespace tutti::training::testing {

// Points the table's views at its own memory during its lifetime.
class BoundParameters {
 public:
  // Sets each value to its initial value plus a random number in [-spread, spread), because zeros
  // and ones hide errors. Gradients start at 0. As in training (StorageOptions::one_pass), they are
  // in f32, or in the values' type if only one micro-batch is added to them.
  BoundParameters(ParameterTable& table, DType dtype, double spread = 0.5, bool one_pass = false);
  ~BoundParameters();
  BoundParameters(const BoundParameters&) = delete;
  BoundParameters& operator=(const BoundParameters&) = delete;

  int size() const { return static_cast<int>(values_.size()); }
  Tensor value(int index) const { return values_[static_cast<size_t>(index)]; }
  Tensor gradient(int index) const { return gradients_[static_cast<size_t>(index)]; }
  void clear_gradients();
  // Copies the values of another binding of the same parameters, rounded to this one's type.
  void copy_values(const BoundParameters& other);

 private:
  ParameterTable& table_;
  std::vector<HostTensor> values_;
  std::vector<HostTensor> gradients_;
};

// Compares the bits of all gradients. Both tables must have the same parameters.
bool same_gradients(const BoundParameters& a, const BoundParameters& b);

struct TestPass {
  explicit TestPass(DType dtype = DType::f64) : pass{{.batch = &batch}, arena} {
    pass.dtype = dtype;
    batch.samples = 1;
  }
  TestPass(const TestPass&) = delete;
  TestPass& operator=(const TestPass&) = delete;

  Arena arena{size_t{1} << 30};
  MicroBatch batch;
  Pass pass;
};

}  // namespace tutti::training::testing
