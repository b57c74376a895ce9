// Host memory for the parameters and gradients of a table, and a pass to run modules in.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/training/support/host_tensor.h"
#include "training/core/parameters.h"
#include "training/core/pass.h"

namespace tutti::training::testing {

// While it exists, the table's views point to its memory.
class BoundParameters {
 public:
  // Adds a random number in [-spread, spread) to each initial value, because zeros and ones hide
  // errors. Gradients start at 0. They are in f32; with `one_pass`, as in training
  // (StorageOptions::one_pass), they are in the type of the values, because only one micro-batch is
  // added.
  BoundParameters(ParameterTable& table, DType dtype, double spread = 0.5, bool one_pass = false);
  ~BoundParameters();
  BoundParameters(const BoundParameters&) = delete;
  BoundParameters& operator=(const BoundParameters&) = delete;

  int size() const { return static_cast<int>(values_.size()); }
  Tensor value(int index) const { return values_[static_cast<size_t>(index)]; }
  Tensor gradient(int index) const { return gradients_[static_cast<size_t>(index)]; }
  void clear_gradients();
  // Copies the values of another binding of the same parameters, rounded to the type of this one.
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
