// A model's parameters by name: what they are (specs), and where they are just now (views).
//
// Modules add their parameters to the table when they are made and keep the handles. Whoever owns
// the memory (sharding.h) points the views at it; a module reads its parameters through the handle
// at each call, so memory may come and go between calls (ZeRO stage 3).
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "training/tensor.h"

namespace tutti::training {

// How a parameter starts. Element i of the parameter named n is a function of (seed, n, i) alone,
// so any rank can make any part of it.
struct Initial {
  enum class Kind { constant, normal, uniform };
  Kind kind = Kind::constant;
  double scale = 0;  // the constant; the standard deviation; the limit of [-scale, scale)
};

struct ParameterSpec {
  std::string name;
  std::vector<int64_t> shape;  // its matrix: first x product of the others; a vector is one row
  Initial initial;
  int unit = 0;        // the first of the model's units that has it
  bool decays = true;  // weight decay: usually matrices only

  int64_t rows() const { return shape.size() < 2 ? 1 : shape.front(); }
  int64_t count() const;
  // Its stream of random numbers: a function of its name alone, the same on every machine.
  uint64_t stream() const;
};

// Memory of one parameter: rows x cols. Empty while the parameter is elsewhere.
struct Parameter {
  Tensor value;
  Tensor gradient;  // backward adds to it
};

// A later unit's use of a parameter (tied embeddings). Its gradient may lie apart from the first
// unit's, so that the two uses are added up separately: on one rank, or on two stages of a
// pipeline.
struct SharedUse {
  int parameter = 0;
  int unit = 0;
  Parameter view;
};

// Not copied: modules hold addresses in it.
class ParameterTable {
 public:
  ParameterTable() = default;
  ParameterTable(const ParameterTable&) = delete;
  ParameterTable& operator=(const ParameterTable&) = delete;

  // The unit is the one that begin_unit() named last. Throws Error(invalid_argument) for a name
  // that is there already and for an impossible shape.
  const Parameter* add(std::string name, std::vector<int64_t> shape, Initial initial);
  void begin_unit(int unit) { unit_ = unit; }
  // The present unit uses a parameter of an earlier unit too: its own handle on it.
  const Parameter* share(const Parameter* parameter);

  int size() const { return static_cast<int>(specs_.size()); }
  const std::vector<ParameterSpec>& specs() const { return specs_; }
  const Parameter& at(int index) const { return views_.at(static_cast<size_t>(index)); }
  // Points all handles on a parameter at memory, or at nothing.
  void set_value(int index, Tensor value);
  void set_gradient(int index, Tensor gradient);
  std::deque<SharedUse>& shared_uses() { return shared_uses_; }
  // The parameters that a unit uses, its own and shared ones; empty for an unknown unit.
  const std::vector<int>& used_by(int unit) const;

 private:
  void use(int index);

  std::vector<ParameterSpec> specs_;
  std::deque<Parameter> views_;  // stable addresses
  std::deque<SharedUse> shared_uses_;
  std::vector<std::vector<int>> uses_;
  int unit_ = 0;
};

// Writes elements [first, first + values.size()) of the parameter's initial value.
void initial_values(const ParameterSpec& spec, uint64_t seed, int64_t first,
                    std::span<float> values);

}  // namespace tutti::training
