// A model's parameters by name: their specifications, and views of their memory.
//
// Modules add their parameters to the table on construction and keep the handles. The owner of the
// memory (parallel/storage.h) points the views at it; a module reads its parameters through the
// handle at each call, so memory may be freed and reallocated between calls (ZeRO stage 3).
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "training/core/placement.h"
#include "training/core/tensor.h"

namespace tutti::training {

// Distribution of a parameter's initial values. Element i of the whole parameter named n depends on
// (seed, n, i) alone, so any rank can compute any part.
struct Initial {
  enum class Kind { constant, normal, uniform };
  Kind kind = Kind::constant;
  double scale = 0;  // the constant, the standard deviation, or the limit of [-scale, scale)
};

struct ParameterSpec {
  std::string name;
  std::vector<int64_t> shape;  // shape of the whole parameter, however it is cut
  Initial initial;
  int unit = 0;        // index of the first unit that uses the parameter
  bool decays = true;  // true if weight decay applies: usually to matrices only
  Placement placement;
  MeshPlace mesh;  // place of this rank in the mesh
  // True if the parameter is the weight of a dense layer, outputs x inputs. Its gradient is then a
  // sum of outer products, one for each row that the layer computes.
  bool is_dense = false;
  // True if the layer also accepts values in blocks of few bits (Parameter::quantized).
  bool is_quantizable = false;

  int64_t count() const;  // Returns the number of elements of the whole parameter.
  // Returns this rank's part. In memory the part is a matrix, whose rows are its first dimension
  // and whose columns are all other dimensions together. A vector is one row.
  Slice slice() const { return slice_of(shape, placement, mesh); }
  int64_t local_count() const { return slice().count(); }
  int64_t local_rows() const { return shape.size() < 2 ? 1 : slice().shape().front(); }
  // Returns the ID of the parameter's random stream. It depends on the parameter's name alone and
  // is the same on every machine.
  uint64_t stream() const;
};

class FactorRows;        // modules/factor_rows.h
struct QuantizedMatrix;  // kernels/quantized_weights.h

// Memory of this rank's part of one parameter: rows x cols. Empty while the parameter is not
// resident.
struct Parameter {
  Tensor value;
  Tensor gradient;  // backward adds to this tensor
  // Deterministic mode, experts only: the gradients from other ranks' micro-batches, one tensor for
  // each of these ranks.
  std::vector<Tensor> other_gradients = {};
  // Not null if the gradient is sent as its factors. Backward then adds rows to the factors instead
  // of adding to `gradient`.
  FactorRows* factors = nullptr;
  // The values in blocks of few bits, in models that are not trained. If set, `value` is empty.
  const QuantizedMatrix* quantized = nullptr;

  int sources() const { return 1 + static_cast<int>(other_gradients.size()); }
  // Returns the gradient from the micro-batches of one rank. `source`: index of that rank among the
  // ranks whose rows the owner of the parameter computes.
  Tensor gradient_of(int source) const {
    if (source == 0 || other_gradients.empty()) return gradient;
    return other_gradients[static_cast<size_t>(source - 1)];
  }
};

// A later unit's use of a parameter (tied embeddings). The gradient of this use may have its own
// memory, so that the gradients of the two uses are summed separately, on one rank or on two stages
// of a pipeline.
struct SharedUse {
  int parameter = 0;
  int unit = 0;
  Parameter view;
};

// All parameters of a model. Not copyable: modules hold addresses in it.
class ParameterTable {
 public:
  // Creates the table of the rank at place `mesh`: it contains that rank's parts of sharded
  // parameters.
  explicit ParameterTable(const MeshPlace& mesh = {}) : mesh_(mesh) {}
  ParameterTable(const ParameterTable&) = delete;
  ParameterTable& operator=(const ParameterTable&) = delete;

  // Returns this rank's place in the mesh, from which modules learn how many ranks share a sharded
  // parameter.
  const MeshPlace& mesh() const { return mesh_; }
  // Adds a parameter to the unit that begin_unit() named last. `shape` is the shape of the whole
  // parameter, before sharding. Throws Error(invalid_argument) for a name that exists already, and
  // for an impossible shape or placement.
  const Parameter* add(std::string name, std::vector<int64_t> shape, Initial initial,
                       Placement placement = {});
  // Marks the parameter that was added last (ParameterSpec::is_dense).
  void mark_dense() { specs_.back().is_dense = true; }
  // Marks the parameter that was added last (ParameterSpec::is_quantizable).
  void mark_quantizable() { specs_.back().is_quantizable = true; }
  void begin_unit(int unit) { unit_ = unit; }
  // Declares that the current unit also uses a parameter of an earlier unit; returns the unit's own
  // handle on it.
  const Parameter* share(const Parameter* parameter);

  int size() const { return static_cast<int>(specs_.size()); }
  const std::vector<ParameterSpec>& specs() const { return specs_; }
  const Parameter& at(int index) const { return views_.at(static_cast<size_t>(index)); }
  // Points all handles on parameter `index` at `value`, which may be empty.
  void set_value(int index, Tensor value);
  void set_gradient(int index, Tensor gradient);
  void set_other_gradients(int index, std::vector<Tensor> others) {
    views_.at(static_cast<size_t>(index)).other_gradients = std::move(others);
  }
  void set_factors(int index, FactorRows* factors) {
    views_.at(static_cast<size_t>(index)).factors = factors;
  }
  // Sets the quantized values of all handles on parameter `index`.
  void set_quantized(int index, const QuantizedMatrix* values);
  std::deque<SharedUse>& shared_uses() { return shared_uses_; }
  const std::deque<SharedUse>& shared_uses() const { return shared_uses_; }
  // Returns the gradients of a parameter's shared uses that have their own memory.
  std::vector<Tensor> separate_gradients(int index) const;
  // Returns the parameters that a unit uses, including shared ones; nothing for an unknown unit.
  const std::vector<int>& used_by(int unit) const;

 private:
  void use(int index);

  MeshPlace mesh_;
  std::vector<ParameterSpec> specs_;
  std::unordered_set<std::string> names_;
  std::deque<Parameter> views_;  // addresses of elements are stable
  std::deque<SharedUse> shared_uses_;
  std::vector<std::vector<int>> uses_;
  int unit_ = 0;
};

// Fills `values` with elements first, first + 1, ... of the infinite series that `initial`, `seed`
// and `stream` define.
void draw(const Initial& initial, uint64_t seed, uint64_t stream, int64_t first,
          std::span<float> values);
// Fills `values` with elements [first, first + values.size()) of this rank's slice of the
// parameter's initial values.
void initial_values(const ParameterSpec& spec, uint64_t seed, int64_t first,
                    std::span<float> values);

}  // namespace tutti::training
