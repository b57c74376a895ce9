// Fixes the order in which deterministic mode sums the gradients of a step's micro-batches, on one
// or several ranks. Micro-batches are the leaves of one binary tree (core/slices.h). Each rank sums
// a branch of the tree, and the all-reduce over ranks sums the upper part:
//
//   micro-batch   0 1 2 3 4 5 6 7        4 on each of 2 ranks, 2 on each of 4 ...
//                 |+| |+| |+| |+|
//                 |-+-|   |-+-|
//                 |---+---|
//
// A rank keeps at most one sum of 1 micro-batch, one of 2, one of 4 ... at a time, like the digits
// of a binary counter.
//
// An expert that computes with other ranks' micro-batches keeps a sum for each of these ranks, and
// adds them in the order of an all-reduce.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "collectives/communicator.h"
#include "training/core/layout.h"
#include "training/core/parameters.h"

namespace tutti::training {

// Sums the gradients that a step's micro-batches write to one buffer, one after the other.
class GradientTree {
 public:
  using Allocate = std::function<Memory<std::byte>(size_t bytes)>;

  void begin_step(int64_t micro_batches) {
    all_ = micro_batches;
    done_ = 0;
  }
  // Ends a micro-batch: takes its gradient from `gradient`, which is then zeroed for the next
  // micro-batch. After the step's last micro-batch, `gradient` becomes the sum.
  void end_micro_batch(Tensor gradient, const Allocate& allocate);
  int64_t levels() const { return std::ssize(sums_); }
  // Returns the number of buffers that a step of `micro_batches` micro-batches needs.
  static int64_t levels(int64_t micro_batches);

 private:
  int64_t all_ = 0;
  int64_t done_ = 0;
  std::vector<Memory<std::byte>> sums_;  // sums of 1, 2, 4 ... micro-batches
};

class GradientSums {
 public:
  // Allocates memory for the gradients of other ranks' micro-batches and points the parameters'
  // views at it. `table` must outlive the object.
  GradientSums(ParameterTable& table, const Layout& layout, DType dtype,
               GradientTree::Allocate allocate);

  // Starts a step. `micro_batches`: for each unit, its number of micro-batches in the step.
  void begin_step(const std::vector<int64_t>& micro_batches);
  // Call when the unit's backward of a micro-batch is done.
  void end_micro_batch(int unit);
  // Adds the sums of other ranks' micro-batches to the parameter's gradient.
  void add_others(int parameter);
  int64_t bytes() const;

  // Returns the number of ranks whose micro-batches the parameter's owner computes. Tensor-parallel
  // ranks count as one.
  static int sources(const ParameterSpec& spec);

 private:
  struct Place {
    int parameter = 0;
    int source = 0;
    GradientTree tree = {};
    Memory<std::byte> memory = nullptr;  // gradients of sources other than the first
  };
  void end(GradientTree& tree, Tensor gradient) { tree.end_micro_batch(gradient, allocate_); }

  ParameterTable& table_;
  DType dtype_;
  GradientTree::Allocate allocate_;
  std::vector<Place> places_;  // by parameter and source
  // by shared use: trees of the gradients that have their own memory
  std::vector<GradientTree> shared_uses_;
  std::vector<std::vector<size_t>> of_unit_;  // by unit: indices in places_
};

}  // namespace tutti::training
