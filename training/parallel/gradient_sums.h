// Deterministic mode: gradients of several micro-batches, on several ranks or on one, are added up
// in one order, whoever computed them. The micro-batches of a step are the leaves of a binary tree
// (core/slices.h); those of a rank are neighbours, and the ranks' sums are the tree's upper part:
//
//   micro-batch   0 1 2 3 4 5 6 7        4 on each of 2 ranks, 2 on each of 4 ...
//                 |+| |+| |+| |+|
//                 |-+-|   |-+-|
//                 |---+---|
//
// A rank has at most one sum of 1, 2, 4 ... micro-batches at a time, as the digits of a binary
// number that counts them.
//
// An expert that computes with other ranks' micro-batches keeps the sums of each rank apart, and
// adds them up as these ranks would have.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "collectives/communicator.h"
#include "training/core/layout.h"
#include "training/core/parameters.h"

namespace tutti::training {

// The sum of the gradients that a step's micro-batches leave in one place, one after the other.
class GradientTree {
 public:
  using Allocate = std::function<Memory<std::byte>(size_t bytes)>;

  void begin_step(int64_t micro_batches) {
    all_ = micro_batches;
    done_ = 0;
  }
  // `gradient`: that of one more micro-batch. It becomes zero, and after the last one the sum.
  void end_micro_batch(Tensor gradient, const Allocate& allocate);
  int64_t levels() const { return std::ssize(sums_); }
  // Of a step of so many micro-batches.
  static int64_t levels(int64_t micro_batches);

 private:
  int64_t all_ = 0;
  int64_t done_ = 0;
  std::vector<Memory<std::byte>> sums_;  // of 1, 2, 4 ... micro-batches
};

class GradientSums {
 public:
  // Memory for other ranks' micro-batches, which the parameters' views then show. The table
  // outlives this.
  GradientSums(ParameterTable& table, const Layout& layout, DType dtype,
               GradientTree::Allocate allocate);

  // By unit, micro-batches of the step.
  void begin_step(const std::vector<int64_t>& micro_batches);
  // The unit's backward of a micro-batch is done.
  void end_micro_batch(int unit);
  // Adds the sums of other ranks' micro-batches to the parameter's gradient.
  void add_others(int parameter);
  int64_t bytes() const;

  // The ranks whose micro-batches one that has such a parameter computes with.
  static int sources(const ParameterSpec& spec);

 private:
  struct Place {
    int parameter = 0;
    int source = 0;
    GradientTree tree = {};
    Memory<std::byte> memory = nullptr;  // of sources but the first
  };
  void end(GradientTree& tree, Tensor gradient) { tree.end_micro_batch(gradient, allocate_); }

  ParameterTable& table_;
  DType dtype_;
  GradientTree::Allocate allocate_;
  std::vector<Place> places_;                 // by parameter and source
  std::vector<GradientTree> shared_uses_;     // by use, of those whose gradients lie apart
  std::vector<std::vector<size_t>> of_unit_;  // of the places
};

}  // namespace tutti::training
