#include "training/optimizers/adafactor.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "training/core/thread_pool.h"
#include "training/optimizers/blocks.h"
#include "training/optimizers/layer_norms.h"
#include "training/optimizers/whole_matrices.h"

namespace tutti::training {
namespace {

constexpr double kLeast = std::numeric_limits<float>::epsilon();
constexpr int64_t kRows = 32;      // rows that a thread processes at a time
constexpr int64_t kColumns = 256;  // columns that a thread processes at a time

// Calls visit(begin, end) for ranges of up to `part` elements of [0, count), on the calling
// thread's pool.
template <typename Visit>
void parallel_ranges(int64_t count, int64_t part, const Visit& visit) {
  parallel_for((count + part - 1) / part,
               [&](int64_t at) { visit(at * part, std::min(count, (at + 1) * part)); });
}

void move_towards(float& mean, double value, double weight) {
  mean = static_cast<float>(mean + (value - mean) * weight);
}

// A matrix of gradients. A vector is a matrix of one row, whose second moment is not factored.
struct Matrix {
  std::span<float> values;
  int64_t rows, cols;

  const float* row(int64_t i) const { return values.data() + i * cols; }
};

void average_rows(const Matrix& g, std::span<float> means, double weight) {
  parallel_ranges(g.rows, kRows, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < g.cols; ++j) sum += static_cast<double>(g.row(i)[j]) * g.row(i)[j];
      move_towards(means[static_cast<size_t>(i)], sum / static_cast<double>(g.cols), weight);
    }
  });
}

void average_columns(const Matrix& g, std::span<float> means, double weight) {
  parallel_ranges(g.cols, kColumns, [&](int64_t begin, int64_t end) {
    std::array<double, kColumns> sums = {};
    for (int64_t i = 0; i < g.rows; ++i) {
      for (int64_t j = begin; j < end; ++j) {
        sums[static_cast<size_t>(j - begin)] += static_cast<double>(g.row(i)[j]) * g.row(i)[j];
      }
    }
    for (int64_t j = begin; j < end; ++j) {
      move_towards(means[static_cast<size_t>(j)],
                   sums[static_cast<size_t>(j - begin)] / static_cast<double>(g.rows), weight);
    }
  });
}

// Replaces g by g / sqrt(v) with v = row_factor(i) col_factors[j].
template <typename RowFactor>
void divide_by_root(const Matrix& g, const RowFactor& row_factor,
                    std::span<const float> col_factors) {
  constexpr auto kLeastSquare = static_cast<float>(kLeast * kLeast);
  parallel_ranges(g.rows, kRows, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float factor = row_factor(i);
      float* const row = g.values.data() + i * g.cols;
      for (int64_t j = 0; j < g.cols; ++j) {
        const float v = factor * col_factors[static_cast<size_t>(j)];
        row[j] /= std::sqrt(std::max(v, kLeastSquare));
      }
    }
  });
}

double root_mean_square(std::span<const float> values) {
  constexpr int64_t kPart = 1 << 14;
  const auto count = std::ssize(values);
  std::vector<double> sums(static_cast<size_t>((count + kPart - 1) / kPart));
  parallel_ranges(count, kPart, [&](int64_t begin, int64_t end) {
    double& sum = sums[static_cast<size_t>(begin / kPart)];
    for (int64_t i = begin; i < end; ++i) {
      const double value = values[static_cast<size_t>(i)];
      sum += value * value;
    }
  });
  double sum = 0;
  for (const double part : sums) sum += part;
  return std::sqrt(sum / static_cast<double>(count));
}

// Updates the second moments by gradients g, and replaces g by g / sqrt(v).
void precondition_vector(std::span<float> g, std::span<float> squares, double weight) {
  const Matrix row{g, 1, std::ssize(g)};
  average_columns(row, squares, weight);
  divide_by_root(
      row, [](int64_t) { return 1.0F; }, squares);
}

void precondition_matrix(const Matrix& g, std::span<float> row_means, std::span<float> col_means,
                         double weight) {
  average_rows(g, row_means, weight);
  average_columns(g, col_means, weight);
  double mean = 0;
  for (const float value : row_means) mean += value;
  mean = std::max(mean / static_cast<double>(g.rows), kLeast);
  divide_by_root(
      g, [&](int64_t i) { return static_cast<float>(row_means[static_cast<size_t>(i)] / mean); },
      col_means);
}

void precondition(const ParameterSpec& spec, std::span<float> g,
                  std::span<const std::span<float>> states, double weight) {
  if (spec.shape.size() < 2) return precondition_vector(g, states[0], weight);
  const auto cols = static_cast<size_t>(spec.shape.back());
  const auto rows = static_cast<size_t>(spec.shape[spec.shape.size() - 2]);
  for (size_t first = 0, at = 0; first < g.size(); first += rows * cols, ++at) {
    precondition_matrix(
        {g.subspan(first, rows * cols), static_cast<int64_t>(rows), static_cast<int64_t>(cols)},
        states[0].subspan(at * rows, rows), states[1].subspan(at * cols, cols), weight);
  }
}

}  // namespace

Adafactor::Adafactor(const AdafactorOptions& options) : options_(options) {
  check_option(options.beta2_decay >= 0, "beta2_decay", options.beta2_decay, "of at least 0");
  check_option(options.clip_threshold >= 1, "clip threshold", options.clip_threshold,
               "of at least 1");
  check_option(options.least_rms >= 0, "least_rms", options.least_rms, "of at least 0");
  check_option(options.weight_decay >= 0, "weight decay", options.weight_decay, "of at least 0");
}

std::vector<WholeState> Adafactor::whole_states(const ParameterSpec& spec, int /*units*/) const {
  if (!is_nonempty(spec)) return {};
  check_whole(spec, "Adafactor");
  if (spec.shape.size() < 2) return {{"exp_avg_sq", {spec.count()}}};
  std::vector<int64_t> rows(spec.shape.begin(), spec.shape.end() - 1);
  std::vector<int64_t> cols(spec.shape.begin(), spec.shape.end() - 2);
  cols.push_back(spec.shape.back());
  return {{"exp_avg_sq_row", rows}, {"exp_avg_sq_col", cols}};
}

void Adafactor::update(std::span<const OwnedPiece> pieces, States states,
                       const StepOptions& options, NormReducer& reducer) {
  PieceValues directions(pieces, is_nonempty);
  LayerNorms norms(options.parameters, pieces);
  const auto factor = static_cast<float>(options.gradient_factor);
  read_blocks(pieces, states, [&](const UpdateBlock& block) {
    norms.add(block.owned, block.values, {});
    float* const direction = directions.of(block);
    for (size_t i = 0; i < block.values.size(); ++i) direction[i] = factor * block.gradients[i];
  });
  norms.reduce(reducer);

  const auto step = static_cast<double>(options.step);
  const double rate = std::min(options.learning_rate, 1 / std::sqrt(step));
  const auto compute = [&](int parameter, const ParameterSpec& spec, std::span<float> g) {
    precondition(spec, g, options.whole->of(parameter), std::pow(step, -options_.beta2_decay));
    const double clip = std::max(1.0, root_mean_square(g) / options_.clip_threshold);
    const double rms = norms.of_values(parameter) / std::sqrt(static_cast<double>(g.size()));
    const auto scale = static_cast<float>(std::max(options_.least_rms, rms) * rate / clip);
    for (float& value : g) value *= scale;
  };
  compute_whole(pieces, is_nonempty, directions.all(), options.matrices, compute);

  const auto shrunk = static_cast<float>(1 - options.learning_rate * options_.weight_decay);
  update_blocks(pieces, states, options, [&](const UpdateBlock& block) {
    const float keep = block.owned.spec->decays ? shrunk : 1;
    const float* const direction = directions.of(block);
    for (size_t i = 0; i < block.values.size(); ++i) {
      block.values[i] = keep * block.values[i] - direction[i];
    }
  });
}

OptimizerKind adafactor_kind() {
  return optimizer_kind<Adafactor, AdafactorOptions>(
      "adafactor",
      [](const ModelTraits&) -> Json {
        return {{"lr", 0.01}};
      },
      [](Schema& schema, AdafactorOptions& options) {
        schema.add("beta2_decay", options.beta2_decay,
                   "exponent N of the decay 1 - step^-N of the mean squared gradients");
        schema.add("clip_threshold", options.clip_threshold,
                   "clipping threshold of the update's root mean square, before the learning rate");
        schema.add(
            "least_rms", options.least_rms,
            "lower bound of the parameter's root mean square, which scales its learning rate");
        schema.add("weight_decay", options.weight_decay, "decoupled weight decay of matrices");
      });
}

}  // namespace tutti::training
