#include "tests/training/support/late_weights.h"

#include <algorithm>
#include <cmath>

#include "tests/training/support/model_pass.h"
#include "training/core/slices.h"
#include "training/kernels/elementwise.h"
#include "training/optimizers/exact_sum.h"

namespace tutti::training::testing {
namespace {

// Returns the memory of a row as the matrix of the parameter.
Tensor as_matrix(Tensor row, const ParameterSpec& spec) {
  return tensor_at(row.data, row.dtype, spec.local_rows(), row.size() / spec.local_rows());
}

}  // namespace

int64_t pipedream_lateness(int64_t i, int64_t s, int64_t p, int64_t a) {
  return std::max<int64_t>(0, i - (p - 1 - s)) / a;
}

int64_t double_buffered_lateness(int64_t i, int64_t /*s*/, int64_t /*p*/, int64_t a) {
  return std::max<int64_t>(0, i / a - 1);
}

LateTraining::LateTraining(Model& model, const LateOptions& options)
    : model_(model), options_(options), stages_(options.cut.size()) {
  int64_t elements = 0;
  for (const ParameterSpec& spec : model_.parameters().specs()) {
    const auto next = std::ranges::upper_bound(options_.cut, spec.unit);
    const auto stage = static_cast<size_t>(next - options_.cut.begin()) - 1;
    stages_[stage].parameters.push_back(static_cast<int>(masters_.size()));
    initial_values(spec, options_.seed, 0,
                   masters_.emplace_back(static_cast<size_t>(spec.count())));
    offsets_.push_back(elements);
    elements += spec.count();
  }
  for (Stage& stage : stages_) {
    stage.optimizer = options_.make_optimizer();
    stage.weights.push_back(rounded_masters());
  }
  states_.resize(stages_.front().optimizer->state_names().size(),
                 std::vector<float>(static_cast<size_t>(elements)));
}

LateTraining::Typed LateTraining::rounded_masters() {
  Typed weights = zeros(options_.dtype);
  for (size_t i = 0; i < masters_.size(); ++i) {
    convert(tensor_at(masters_[i].data(), DType::f32, 1, std::ssize(masters_[i])),
            weight(weights, static_cast<int>(i)));
  }
  return weights;
}

Tensor LateTraining::tensor(Typed& of, int parameter, DType dtype) const {
  const int64_t count = model_.parameters().specs()[static_cast<size_t>(parameter)].count();
  return tensor_at(of[static_cast<size_t>(parameter)].data(), dtype, 1, count);
}

LateTraining::Typed LateTraining::zeros(DType dtype) const {
  Typed all;
  for (const ParameterSpec& spec : model_.parameters().specs()) {
    all.emplace_back(static_cast<size_t>(spec.count()) * size_of(dtype));
  }
  return all;
}

void LateTraining::take_weights(int64_t micro_batch, int64_t accumulated) {
  const std::vector<ParameterSpec>& specs = model_.parameters().specs();
  for (size_t s = 0; s < stages_.size(); ++s) {
    const int64_t updates =
        options_.lateness(micro_batch, static_cast<int64_t>(s), std::ssize(stages_), accumulated);
    Typed& weights = stages_[s].weights.at(static_cast<size_t>(updates));
    for (const int i : stages_[s].parameters) {
      model_.parameters().set_value(i,
                                    as_matrix(weight(weights, i), specs[static_cast<size_t>(i)]));
    }
  }
}

// Runs one micro-batch and adds its gradients to `gradients`. Returns the sum of its losses.
double LateTraining::train(const MicroBatch& batch, double loss_scale, Typed& gradients) {
  const std::vector<ParameterSpec>& specs = model_.parameters().specs();
  for (int i = 0; i < std::ssize(specs); ++i) {
    model_.parameters().set_gradient(
        i, as_matrix(gradient(gradients, i), specs[static_cast<size_t>(i)]));
  }
  const ArenaScope scope(arena_);
  Pass pass{{.batch = &batch,
             .dtype = options_.dtype,
             .seed = options_.dropout_seed,
             .loss_scale = loss_scale},
            arena_};
  forward(model_, pass);
  backward(model_, pass);
  return pass.loss.get().sum;
}

LateTraining::Typed LateTraining::sum_of(std::vector<Typed> terms) const {
  add_up_in_order(static_cast<int>(terms.size()), [&](int into, int term) {
    for (int i = 0; i < model_.parameters().size(); ++i) {
      const Tensor sum = gradient(terms[static_cast<size_t>(into)], i);
      add(sum, gradient(terms[static_cast<size_t>(term)], i), sum);
    }
  });
  return std::move(terms.front());
}

void LateTraining::make_next_weights(Stage& stage, Typed& gradients, int64_t update,
                                     double learning_rate) {
  std::vector<OwnedPiece> pieces;
  for (const int i : stage.parameters) {
    const auto at = static_cast<size_t>(i);
    pieces.push_back(
        {.piece = {.parameter = i, .count = std::ssize(masters_[at]), .owned_offset = offsets_[at]},
         .spec = &model_.parameters().specs()[at],
         .master = masters_[at],
         .gradient = gradient(gradients, i)});
  }
  const std::vector<std::span<float>> states(states_.begin(), states_.end());
  NormReducer alone;
  stage.optimizer->step(
      pieces, states,
      {.step = update, .learning_rate = learning_rate, .parameters = model_.parameters().size()},
      alone);
  stage.weights.push_back(rounded_masters());
}

std::vector<LateResult> LateTraining::run(std::span<const LateBatches> updates, int64_t accumulated,
                                          int64_t first) {
  std::vector<LateResult> results;
  for (int64_t u = 0; u < std::ssize(updates); ++u) {
    const LateBatches& batches = updates[static_cast<size_t>(u)];
    const auto targets = static_cast<double>(batches.targets);
    ExactSum loss;
    std::vector<Typed> gradients;
    for (const std::vector<MicroBatch>& row : batches.rows) {
      std::vector<Typed> terms;
      for (int64_t j = 0; j < std::ssize(row); ++j) {
        terms.push_back(zeros(DType::f32));
        if (row[static_cast<size_t>(j)].weight == 0) continue;
        take_weights(u * accumulated + j, accumulated);
        loss.add(train(row[static_cast<size_t>(j)], 1 / targets, terms.back()));
      }
      gradients.push_back(sum_of(std::move(terms)));
    }
    ExactSum squares;
    for (int i = 0; i < model_.parameters().size(); ++i) {
      const Tensor sum = gradient(gradients.front(), i);
      for (size_t row = 1; row < gradients.size(); ++row)
        add(sum, gradient(gradients[row], i), sum);
      add_squares(sum, squares);
    }
    for (Stage& stage : stages_) {
      make_next_weights(stage, gradients.front(), first + u, batches.learning_rate);
    }
    results.push_back({loss.value() / targets, std::sqrt(squares.value())});
  }
  for (Stage& stage : stages_) {  // the flush
    stage.weights.erase(stage.weights.begin(), stage.weights.end() - 1);
  }
  return results;
}

std::vector<std::vector<std::vector<float>>> LateTraining::states() const {
  std::vector<std::vector<std::vector<float>>> by_kind;
  for (const std::vector<float>& all : states_) {
    std::vector<std::vector<float>>& by_parameter = by_kind.emplace_back();
    for (size_t i = 0; i < masters_.size(); ++i) {
      const auto first = all.begin() + offsets_[i];
      by_parameter.emplace_back(first, first + std::ssize(masters_[i]));
    }
  }
  return by_kind;
}

}  // namespace tutti::training::testing
