#include "training/optimizers/soap.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "training/kernels/decompositions.h"
#include "training/kernels/gemm.h"
#include "training/optimizers/blocks.h"
#include "training/optimizers/whole_matrices.h"

namespace tutti::training {
namespace {

bool is_preconditioned(const ParameterSpec& spec, int64_t size, const SoapOptions& options) {
  return spec.shape.size() >= 2 && size <= options.max_dimension;
}

void move_towards(std::span<float> mean, std::span<const float> values, float weight) {
  for (size_t i = 0; i < mean.size(); ++i) mean[i] += (values[i] - mean[i]) * weight;
}

// A dimension of the tensor. Its preconditioner and its basis are size x size matrices, or empty if
// the dimension is not preconditioned.
struct Mode {
  int64_t size = 0;
  std::span<float> preconditioner;
  std::span<float> basis;

  bool is_preconditioned() const { return !basis.empty(); }
};

class Preconditioned {
 public:
  // Creates views of a parameter's states; `states`: the states in the order of whole_states().
  Preconditioned(const ParameterSpec& spec, std::span<const std::span<float>> states,
                 const SoapOptions& options)
      : options_(options), mean_(states[0]), squares_(states[1]) {
    auto next = states.begin() + 2;
    for (const int64_t size : spec.shape) {
      Mode& mode = modes_.emplace_back(Mode{.size = size});
      if (!is_preconditioned(spec, size, options)) continue;
      mode.preconditioner = *next++;
      mode.basis = *next++;
    }
  }

  void begin(std::span<const float> gradient) {
    collect(gradient);
    for (const Mode& mode : modes_) {
      if (!mode.is_preconditioned()) continue;
      symmetric_eigenvectors(mode.preconditioner, mode.size, mode.basis);
    }
  }

  // Returns the direction of update `step`, counted from 1 (the initializing step is not counted).
  std::vector<float> direction(std::span<const float> gradient, int64_t step) {
    std::vector<float> projected = project({gradient.begin(), gradient.end()}, Transpose::no);
    for (float& value : projected) value *= value;
    move_towards(mean_, gradient, static_cast<float>(1 - options_.beta1));
    move_towards(squares_, projected, static_cast<float>(1 - options_.beta2));

    std::vector<float> scaled = project({mean_.begin(), mean_.end()}, Transpose::no);
    const auto epsilon = static_cast<float>(options_.epsilon);
    for (size_t i = 0; i < scaled.size(); ++i) scaled[i] /= std::sqrt(squares_[i]) + epsilon;
    std::vector<float> made = project(std::move(scaled), Transpose::yes);
    const auto correction = static_cast<float>(std::sqrt(bias_correction(options_.beta2, step)) /
                                               bias_correction(options_.beta1, step));
    for (float& value : made) value *= correction;

    collect(gradient);
    if (step % options_.frequency == 0) turn_bases();
    return made;
  }

 private:
  // Updates the preconditioners by the gradient's products.
  void collect(std::span<const float> gradient) {
    std::vector<float> values(gradient.begin(), gradient.end());
    for (const Mode& mode : modes_) {
      if (mode.is_preconditioned()) {
        std::vector<float> products(mode.preconditioner.size());
        const Tensor unfolded = matrix_of(values, mode.size);
        gemm(unfolded, Transpose::no, unfolded, Transpose::yes, matrix_of(products, mode.size));
        move_towards(mode.preconditioner, products, static_cast<float>(1 - options_.beta2));
      }
      values = rotated(values, mode.size);
    }
  }

  // Projects the tensor into the bases. With `back` = yes, reverses the projection of a projected
  // tensor. Processes the first dimension and rotates it to the last position, once for each
  // dimension.
  std::vector<float> project(std::vector<float> values, Transpose back) const {
    for (const Mode& mode : modes_) {
      if (!mode.is_preconditioned()) {
        values = rotated(values, mode.size);
        continue;
      }
      std::vector<float> product(values.size());
      gemm(matrix_of(values, mode.size), Transpose::yes, matrix_of(mode.basis, mode.size), back,
           matrix_of(product, std::ssize(values) / mode.size));
      values.swap(product);
    }
    return values;
  }

  // Moves the first dimension to the last position.
  static std::vector<float> rotated(const std::vector<float>& values, int64_t size) {
    const auto rows = static_cast<size_t>(size);
    const size_t cols = values.size() / rows;
    std::vector<float> turned(values.size());
    for (size_t i = 0; i < rows; ++i) {
      for (size_t j = 0; j < cols; ++j) turned[j * rows + i] = values[i * cols + j];
    }
    return turned;
  }

  void turn_bases() {
    for (size_t d = 0; d < modes_.size(); ++d) {
      if (modes_[d].is_preconditioned()) turn_basis(d);
    }
  }

  // Updates the basis of a dimension by one step of power iteration, and sorts it and squares_ by
  // the estimated eigenvalues, in descending order.
  void turn_basis(size_t dimension) {
    const Mode& mode = modes_[dimension];
    const auto n = static_cast<size_t>(mode.size);
    std::vector<float> product(n * n);
    gemm(matrix_of(mode.preconditioner, mode.size), Transpose::no, matrix_of(mode.basis, mode.size),
         Transpose::no, matrix_of(product, mode.size));
    std::vector<double> eigenvalues(n);
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j) {
        eigenvalues[j] += static_cast<double>(mode.basis[i * n + j]) * product[i * n + j];
      }
    }
    std::vector<size_t> order(n);
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, std::greater<>(), [&](size_t at) { return eigenvalues[at]; });
    for (size_t i = 0; i < n; ++i) {
      for (size_t j = 0; j < n; ++j) mode.basis[i * n + j] = product[i * n + order[j]];
    }
    orthogonal_factor(mode.basis, mode.size);
    sort_squares(dimension, order);
  }

  void sort_squares(size_t dimension, const std::vector<size_t>& order) {
    size_t inner = 1;
    for (size_t d = dimension + 1; d < modes_.size(); ++d) {
      inner *= static_cast<size_t>(modes_[d].size);
    }
    const std::vector<float> before(squares_.begin(), squares_.end());
    for (size_t at = 0; at < squares_.size(); ++at) {
      const size_t index = at / inner % order.size();
      squares_[at] = before[at + order[index] * inner - index * inner];
    }
  }

  const SoapOptions& options_;
  std::span<float> mean_;     // moving average of gradients
  std::span<float> squares_;  // moving average of squared projected gradients
  std::vector<Mode> modes_;
};

}  // namespace

Soap::Soap(const SoapOptions& options) : options_(options) {
  check_moments({.beta1 = options.beta1, .beta2 = options.beta2, .epsilon = options.epsilon});
  check_option(options.weight_decay >= 0, "weight decay", options.weight_decay, "of at least 0");
  check_option(options.frequency >= 1, "frequency", static_cast<double>(options.frequency),
               "of at least 1");
  // LAPACK counts its workspace, 2 n^2 numbers, in 32 bits, which limits the dimension.
  check_option(options.max_dimension >= 0 && options.max_dimension <= 32000, "max_dimension",
               static_cast<double>(options.max_dimension), "from 0 to 32000");
}

std::vector<WholeState> Soap::whole_states(const ParameterSpec& spec, int /*units*/) const {
  if (!is_nonempty(spec)) return {};
  check_whole(spec, "SOAP");
  std::vector<WholeState> states = {{"exp_avg", spec.shape}, {"exp_avg_sq", spec.shape}};
  for (size_t d = 0; d < spec.shape.size(); ++d) {
    const int64_t size = spec.shape[d];
    if (!is_preconditioned(spec, size, options_)) continue;
    states.push_back({"preconditioner_" + std::to_string(d), {size, size}});
    states.push_back({"basis_" + std::to_string(d), {size, size}});
  }
  return states;
}

void Soap::update(std::span<const OwnedPiece> pieces, States states, const StepOptions& options,
                  NormReducer& /*reducer*/) {
  PieceValues directions(pieces, is_nonempty);
  const auto factor = static_cast<float>(options.gradient_factor);
  read_blocks(pieces, states, [&](const UpdateBlock& block) {
    float* const direction = directions.of(block);
    for (size_t i = 0; i < block.values.size(); ++i) direction[i] = factor * block.gradients[i];
  });
  const auto compute = [&](int parameter, const ParameterSpec& spec, std::span<float> gradient) {
    const std::vector<std::span<float>> own = options.whole->of(parameter);
    Preconditioned tensor(spec, own, options_);
    if (options.step == 1) return tensor.begin(gradient);
    std::ranges::copy(tensor.direction(gradient, options.step - 1), gradient.begin());
  };
  compute_whole(pieces, is_nonempty, directions.all(), options.matrices, compute);
  if (options.step == 1) return;

  const auto rate = static_cast<float>(options.learning_rate);
  const auto shrunk = static_cast<float>(1 - options.learning_rate * options_.weight_decay);
  update_blocks(pieces, states, options, [&](const UpdateBlock& block) {
    const float keep = block.owned.spec->decays ? shrunk : 1;
    const float* const direction = directions.of(block);
    for (size_t i = 0; i < block.values.size(); ++i) {
      block.values[i] = keep * (block.values[i] - rate * direction[i]);
    }
  });
}

OptimizerKind soap_kind() {
  return optimizer_kind<Soap, SoapOptions>(
      "soap",
      [](const ModelTraits& model) -> Json {
        return {{"lr", 0.01}, {"weight_decay", model.weight_decay}};
      },
      [](Schema& schema, SoapOptions& options) {
        schema.add("beta1", options.beta1, "decay rate of the mean gradient (first moment)");
        schema.add("beta2", options.beta2,
                   "decay rate of the mean squared gradient (second moment)");
        schema.add("eps", options.epsilon, "term added to the denominator");
        schema.add("precondition_frequency", options.frequency,
                   "steps between updates of the eigenbases");
        schema.add("max_precondition_dim", options.max_dimension,
                   "largest parameter dimension that is preconditioned");
        schema.add("weight_decay", options.weight_decay, "decoupled weight decay of matrices");
      });
}

}  // namespace tutti::training
