// Where a model's parameters live: one flat array, described by a layout that is a value.
//
// A pure function maps named parameters to offsets. Values, gradients and optimizer state are flat
// arrays with that one layout, so a collective or an optimizer works on all of them in place, and
// every later scheme (buckets, sharded state, checkpoints) reads the same description.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/communicator.h"

namespace tutti::training {

// Each parameter starts on a cache line; the gap before it holds zeros, in values and gradients.
inline constexpr size_t kParameterAlignment = 64;  // bytes

struct ParameterSpec {
  std::string name;
  std::vector<int64_t> shape;
};

struct ParameterSlot {
  std::string name;
  std::vector<int64_t> shape;
  size_t offset = 0;  // elements from the start of the flat array
  size_t count = 0;   // elements

  bool is_matrix() const { return shape.size() >= 2; }
};

struct ParameterLayout {
  std::vector<ParameterSlot> slots;  // in the order of the specs, offsets ascending
  size_t size = 0;                   // elements of the flat array, gaps included

  size_t parameter_count() const;  // elements, gaps not included
  // Throws Error(invalid_argument) for an unknown name.
  const ParameterSlot& find(std::string_view name) const;
};

// Throws Error(invalid_argument) for a name that is there twice or a negative dimension.
ParameterLayout make_layout(const std::vector<ParameterSpec>& specs);

// Page-aligned, zeroed memory that belongs to no communicator: for activations, and for models that
// are alone.
Memory<float> allocate_host(size_t count);

// A module's view of one of its parameters.
struct Parameter {
  std::span<float> value;
  std::span<float> gradient;
};

// The values and gradients of one model on one rank. Shares ownership of both arrays.
class Parameters {
 public:
  // `values` and `gradients` have layout.size elements each, zero in the gaps. Gradients that are
  // all-reduced should come from Communicator::allocate, so that no staging copy is needed.
  Parameters(ParameterLayout layout, Memory<float> values, Memory<float> gradients);
  explicit Parameters(ParameterLayout layout);  // host memory

  const ParameterLayout& layout() const { return layout_; }
  std::span<float> values() const { return {values_.get(), layout_.size}; }
  std::span<float> gradients() const { return {gradients_.get(), layout_.size}; }
  Parameter at(size_t slot) const;
  void zero_gradients();

 private:
  ParameterLayout layout_;
  Memory<float> values_;
  Memory<float> gradients_;
};

}  // namespace tutti::training
