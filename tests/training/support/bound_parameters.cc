#include "tests/training/support/bound_parameters.h"

#include "training/core/random.h"

namespace tutti::training::testing {

BoundParameters::BoundParameters(ParameterTable& table, DType dtype, double spread, bool one_pass)
    : table_(table) {
  constexpr uint64_t kSeed = 7;
  const DType gradient_type = one_pass || dtype == DType::f64 ? dtype : DType::f32;
  for (int index = 0; index < table.size(); ++index) {
    const ParameterSpec& spec = table.specs()[static_cast<size_t>(index)];
    const int64_t count = spec.local_count();
    const int64_t rows = spec.local_rows();
    const int64_t cols = rows == 0 ? 0 : count / rows;
    std::vector<float> initial(static_cast<size_t>(count));
    initial_values(spec, kSeed, 0, initial);
    values_.push_back(
        random_tensor(dtype, rows, cols, 1000 + static_cast<uint64_t>(index), spread));
    gradients_.emplace_back(gradient_type, rows, cols);
    std::vector<double> sums = doubles(values_.back());
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += static_cast<double>(initial[i]);
    assign(values_.back(), sums);
    table.set_value(index, values_.back());
    table.set_gradient(index, gradients_.back());
  }
}

BoundParameters::~BoundParameters() {
  for (int index = 0; index < size(); ++index) {
    table_.set_value(index, {});
    table_.set_gradient(index, {});
  }
}

void BoundParameters::clear_gradients() {
  for (const HostTensor& gradient : gradients_) {
    assign(gradient, std::vector<double>(static_cast<size_t>(gradient.view().size())));
  }
}

void BoundParameters::copy_values(const BoundParameters& other) {
  for (int index = 0; index < size(); ++index) assign(value(index), doubles(other.value(index)));
}

bool same_gradients(const BoundParameters& a, const BoundParameters& b) {
  for (int index = 0; index < a.size(); ++index) {
    if (!same_bits(a.gradient(index), b.gradient(index))) return false;
  }
  return a.size() == b.size();
}

}  // namespace tutti::training::testing
