#include "training/models/mixture.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/text.h"
#include "training/kernels/elementwise.h"
#include "training/kernels/embedding.h"
#include "training/kernels/rows.h"
#include "training/parallel/convert_layout.h"

namespace tutti::training {
namespace {

MlpOptions shared_expert(MlpOptions mlp, const MixtureOptions& options) {
  mlp.hidden = options.shared_hidden;
  mlp.names = options.shared_names;
  return mlp;
}

Tensor part_of(Tensor flat, int64_t first, int64_t rows, int64_t cols) {
  return flat.reshaped(1, flat.size()).col_range(first, rows * cols).reshaped(rows, cols);
}

}  // namespace

Mixture::Mixture(ParameterTable& table, const std::string& name, const MixtureOptions& options,
                 const MlpOptions& mlp, int64_t context, int64_t layer,
                 const std::shared_ptr<ExpertLoad>& load)
    : place_(table.mesh()), router_(table, name, options.router, mlp.width, context, layer, load) {
  for (int64_t expert = 0; expert < options.router.experts; ++expert) {
    experts_.emplace_back(table, cat(name, ".experts.", expert), mlp);
  }
  if (options.shared_hidden == 0) return;
  shared_.emplace(table, cat(name, '.', options.shared_name), shared_expert(mlp, options));
  if (!options.shared_gate) return;
  shared_gate_.emplace(table, cat(name, '.', options.shared_name, "_gate"), mlp.width, 1,
                       LinearOptions{.bias = false});
}

Tensor Mixture::take(Pass& pass, DType type, int64_t rows, Saved& saved) const {
  router_.take(pass, rows, saved.router);
  const int64_t width =
      topk() * experts_.front().before_width() + (shared_ ? shared_->before_width() : 0);
  return pass.arena.take(type, rows, width);
}

std::vector<double> Mixture::shared_weights(Pass& pass, ConstTensor input, Saved& saved) const {
  std::vector<double> weights(static_cast<size_t>(input.rows), 1);
  if (!shared_gate_) return weights;
  const ArenaScope scope(pass.arena);
  const Tensor logits = shared_gate_->forward(pass, input, saved.shared_gate);
  const Tensor values = pass.arena.take(value_type(logits.dtype), logits.rows, 1);
  convert(logits, values);
  std::ranges::transform(row_of(values.reshaped(1, values.rows), 0), weights.begin(),
                         [](double logit) { return 1 / (1 + std::exp(-logit)); });
  return weights;
}

// Rows by expert, of each in the order of its tokens.
void Mixture::lay_out(Pass& pass, ConstTensor input, Saved& saved) const {
  const Router::Saved& chosen = saved.router;
  const auto tokens = static_cast<size_t>(input.rows);
  const auto k = static_cast<size_t>(topk()), all = static_cast<size_t>(each());
  std::vector<int64_t> counts(parts());
  for (const int32_t expert : chosen.experts) {
    if (expert >= 0) ++counts[static_cast<size_t>(expert)];
  }
  if (shared_) counts.back() = input.rows;
  saved.rows.clear();
  int64_t rows = 0;
  for (const int64_t count : counts) {
    saved.rows.push_back({rows, count});
    rows += count;
  }
  saved.tokens.resize(static_cast<size_t>(rows));
  saved.row_weights.resize(static_cast<size_t>(rows));
  saved.places.assign(tokens * all, -1);
  saved.weights.assign(tokens * all, 0);
  saved.experts.resize(parts());
  const std::vector<double> shared =
      shared_ ? shared_weights(pass, input, saved) : std::vector<double>();
  std::vector<int64_t> next;
  for (const Share& its : saved.rows) next.push_back(its.first);
  const auto place = [&](size_t token, size_t choice, size_t part, double weight) {
    const auto row = static_cast<size_t>(next[part]++);
    saved.tokens[row] = static_cast<int32_t>(token);
    saved.row_weights[row] = weight;
    saved.places[token * all + choice] = static_cast<int32_t>(row);
    saved.weights[token * all + choice] = weight;
  };
  for (size_t token = 0; token < tokens; ++token) {
    for (size_t choice = 0; choice < k; ++choice) {
      const int32_t expert = chosen.experts[token * k + choice];
      if (expert < 0) continue;
      place(token, choice, static_cast<size_t>(expert), chosen.weights[token * k + choice]);
    }
    if (shared_) place(token, k, experts_.size(), shared[token]);
  }
}

// The rows of `tokens` that go to an expert; the shared expert gets all.
ConstTensor Mixture::rows_of(Pass& pass, const Saved& saved, ConstTensor tokens,
                             size_t part) const {
  if (part == experts_.size()) return tokens;
  const Share& its = saved.rows[part];
  const Tensor rows = pass.arena.take(tokens.dtype, its.count, tokens.cols);
  embedding(tokens, {},
            std::span(saved.tokens)
                .subspan(static_cast<size_t>(its.first), static_cast<size_t>(its.count)),
            rows);
  return rows;
}

Tensor Mixture::before_of(const Saved& saved, Tensor before, size_t part) const {
  const int64_t width = experts_.front().before_width();
  const Share& its = saved.rows[part];
  const bool is_shared = part == experts_.size();
  return part_of(before, width * (is_shared ? before.rows * topk() : its.first), its.count,
                 this->part(part).before_width());
}

void Mixture::project(Pass& pass, ConstTensor input, Saved& saved, Tensor before) const {
  router_.forward(pass, input, saved.router);
  lay_out(pass, input, saved);
  for (size_t i = 0; i < parts(); ++i) {
    if (saved.rows[i].count == 0) continue;
    part(i).project(pass, rows_of(pass, saved, input, i), saved.experts[i],
                    before_of(saved, before, i));
  }
}

void Mixture::activate(Pass& pass, Saved& saved) const {
  for (size_t i = 0; i < parts(); ++i) {
    if (saved.rows[i].count > 0) part(i).activate(pass, saved.experts[i]);
  }
}

// In deterministic mode the ranks' parts of rows are summed before rows are added up, since the
// order of these sums would tell how many ranks there are; the first rank has the result then.
void Mixture::add_up(Pass& pass, const Saved& saved, Tensor rows, std::span<const double> weights,
                     Tensor output) const {
  if (pass.slices > 1 && place_.size(Axis::tensor) > 1) {
    rows = convert_layout(pass, place_, rows, {rows.rows, rows.cols}, kTensorPartial, kReplicated);
    if (place_.place(Axis::tensor) > 0) return zero(output);
  }
  add_up_rows(rows, saved.places, weights, output);
}

void Mixture::finish(Pass& pass, Saved& saved, Tensor output) const {
  const ArenaScope scope(pass.arena);
  const Tensor rows = pass.arena.take(output.dtype, std::ssize(saved.tokens), output.cols);
  for (size_t i = 0; i < parts(); ++i) {
    const Share& its = saved.rows[i];
    if (its.count == 0) continue;
    part(i).finish(pass, saved.experts[i], rows.row_range(its.first, its.count));
  }
  add_up(pass, saved, rows, saved.weights, output);
}

void Mixture::set_input(Saved& saved, ConstTensor input) const {
  saved.input = input;
  router_.set_input(saved.router, input);
  saved.shared_gate.input = input;
}

Tensor Mixture::backward(Pass& pass, ConstTensor output_gradient, Saved& saved) const {
  const DType type = type_of_parts(pass, output_gradient.dtype);
  const Tensor gradient = pass.arena.take(type, output_gradient.rows, output_gradient.cols);
  const Tensor rows = pass.arena.take(type, std::ssize(saved.tokens), gradient.cols);
  std::vector<double> row_gradients(saved.tokens.size());
  for (size_t i = 0; i < parts(); ++i) {
    const Share& its = saved.rows[i];
    if (its.count == 0) continue;
    const auto first = static_cast<size_t>(its.first), count = static_cast<size_t>(its.count);
    const size_t mark = pass.arena.mark();
    part(i).set_input(saved.experts[i], rows_of(pass, saved, saved.input, i));
    copy(part(i).backward(pass, rows_of(pass, saved, output_gradient, i),
                          {std::span(saved.row_weights).subspan(first, count),
                           std::span(row_gradients).subspan(first, count)},
                          saved.experts[i]),
         rows.row_range(its.first, its.count));
    if (!pass.split) pass.arena.release(mark);
  }
  add_up(pass, saved, rows, {}, gradient);
  backward_weights(pass, row_gradients, saved);
  return gradient;
}

void Mixture::backward_weights(Pass& pass, std::span<const double> row_gradients,
                               Saved& saved) const {
  const int64_t tokens = saved.input.rows;
  Tensor all = pass.arena.take(DType::f64, tokens, each());
  const std::span<double> weights = all.values<double>();
  for (size_t i = 0; i < weights.size(); ++i) {
    weights[i] = saved.places[i] < 0 ? 0 : row_gradients[static_cast<size_t>(saved.places[i])];
  }
  all = convert_layout(pass, place_, all, {tokens, each()}, kTensorPartial, kReplicated);
  std::vector<double> chosen;
  for (int64_t token = 0; token < tokens; ++token) {
    const double* const its = all.values<double>().data() + token * each();
    chosen.insert(chosen.end(), its, its + topk());
  }
  saved.input_gradient = router_.backward(pass, chosen, saved.router);
  if (!shared_gate_) return;
  std::vector<double> logits(static_cast<size_t>(tokens));
  for (size_t token = 0; token < logits.size(); ++token) {
    const size_t at = (token + 1) * static_cast<size_t>(each()) - 1;
    logits[token] = all.values<double>()[at] * saved.weights[at] * (1 - saved.weights[at]);
  }
  const Tensor wide = pass.arena.take(value_type(pass.dtype), tokens, 1);
  set_row(wide.reshaped(1, tokens), 0, logits);
  Tensor gradient = wide;
  if (pass.dtype != wide.dtype) {
    gradient = pass.arena.take(pass.dtype, tokens, 1);
    convert(wide, gradient);
  }
  const Tensor more = shared_gate_->backward(pass, gradient, saved.shared_gate);
  add(saved.input_gradient, more, saved.input_gradient);
}

}  // namespace tutti::training
