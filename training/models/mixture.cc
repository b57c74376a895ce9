#include "training/models/mixture.h"

#include <algorithm>
#include <cmath>
#include <numeric>
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

template <typename T>
std::span<T> part_of(std::span<T> all, const Share& rows) {
  return all.subspan(static_cast<size_t>(rows.first), static_cast<size_t>(rows.count));
}

ConstTensor column_of(std::span<const double> numbers) {
  return tensor_at(static_cast<const void*>(numbers.data()), DType::f64, std::ssize(numbers), 1);
}
Tensor column_of(std::span<double> numbers) {
  return tensor_at(numbers.data(), DType::f64, std::ssize(numbers), 1);
}

// The rows of a job.
ConstTensor rows_of(Pass& pass, ConstTensor from, const Mixture::Job& job) {
  if (job.indices.empty()) return from.row_range(job.rows.first, job.rows.count);
  const Tensor rows = pass.arena.take(from.dtype, job.rows.count, from.cols);
  embedding(from, {}, job.indices, rows);
  return rows;
}

}  // namespace

Mixture::Mixture(ParameterTable& table, const std::string& name, const MixtureOptions& options,
                 const MlpOptions& mlp, int64_t context, int64_t layer,
                 const std::shared_ptr<ExpertLoad>& load)
    : place_(table.mesh()), router_(table, name, options.router, mlp.width, context, layer, load) {
  const int64_t experts = options.router.experts;
  for (int64_t expert = 0; expert < experts; ++expert) {
    MlpOptions its = mlp;
    if (exchanges()) {
      const int ranks = place_.ranks_along(place_.experts);
      its.owner = {place_.experts, RowExchange::rank_of(expert, experts, ranks)};
    }
    experts_.emplace_back(table, cat(name, ".experts.", expert), its);
  }
  if (options.shared_hidden == 0) return;
  shared_.emplace(table, cat(name, '.', options.shared_name), shared_expert(mlp, options));
  if (!options.shared_gate) return;
  shared_gate_.emplace(table, cat(name, '.', options.shared_name, "_gate"), mlp.width, 1,
                       LinearOptions{.bias = false});
}

Tensor Mixture::take(Pass& pass, DType type, int64_t rows, Saved& saved) const {
  router_.take(pass, rows, saved.router);
  const int64_t width = shared_width() + (exchanges() ? 0 : topk() * expert_width());
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

Share Mixture::own_tokens(int64_t tokens) const {
  if (!lies_over_tensor_ranks()) return {0, tokens};
  return even_share(tokens, place_.place(Axis::tensor), place_.size(Axis::tensor));
}

// Routes the tokens, and returns how many of this rank's rows each expert gets. Its rows are in the
// order of their tokens.
std::vector<int64_t> Mixture::lay_out(Pass& pass, ConstTensor input, Saved& saved) const {
  router_.forward(pass, input, saved.router);
  const Router::Saved& chosen = saved.router;
  const auto tokens = static_cast<size_t>(input.rows);
  const auto k = static_cast<size_t>(topk()), all = static_cast<size_t>(each());
  const Share sent = pass.weightless() ? Share() : own_tokens(input.rows);
  const auto begin = static_cast<size_t>(sent.first) * k;
  const auto end = static_cast<size_t>(sent.first + sent.count) * k;
  std::vector<int64_t> counts(experts_.size());
  for (size_t choice = begin; choice < end; ++choice) {
    if (chosen.experts[choice] >= 0) ++counts[static_cast<size_t>(chosen.experts[choice])];
  }
  saved.shared_rows = shared_ ? input.rows : 0;
  saved.places.assign(tokens * all, -1);
  saved.weights.assign(tokens * all, 0);
  saved.row_weights.clear();
  if (shared_) saved.row_weights = shared_weights(pass, input, saved);
  for (size_t token = 0; token < saved.row_weights.size(); ++token) {
    saved.places[token * all + k] = static_cast<int32_t>(token);
    saved.weights[token * all + k] = saved.row_weights[token];
  }
  std::vector<int64_t> next(experts_.size());
  std::exclusive_scan(counts.begin(), counts.end(), next.begin(), int64_t{0});
  const auto rows = static_cast<size_t>(next.back() + counts.back());
  saved.tokens.resize(rows);
  saved.row_weights.resize(static_cast<size_t>(saved.shared_rows) + rows);
  for (size_t choice = begin; choice < end; ++choice) {
    if (chosen.experts[choice] < 0) continue;
    const int64_t row = next[static_cast<size_t>(chosen.experts[choice])]++;
    const auto place = static_cast<size_t>(saved.shared_rows + row);
    const size_t entry = choice / k * all + choice % k;
    saved.tokens[static_cast<size_t>(row)] = static_cast<int32_t>(choice / k);
    saved.row_weights[place] = saved.weights[entry] = chosen.weights[choice];
    saved.places[entry] = static_cast<int32_t>(place);
  }
  return counts;
}

// An expert computes with all ranks' rows at once; in deterministic mode with those of one
// micro-batch after the other, as if it were there alone.
void Mixture::put_into_order(const Pass& pass, Saved& saved) const {
  const RowExchange& exchange = saved.exchange;
  const int of_a_batch = place_.ranks_along(place_.experts & AxisSet{Axis::tensor});
  const int at_once = pass.slices > 1 ? of_a_batch : exchange.ranks();
  const int own = place_.number_along(place_.experts);
  const Share bins = RowExchange::bins_of(std::ssize(experts_), own, exchange.ranks());
  saved.order.clear();
  saved.jobs.clear();
  for (int first = 0; first < exchange.ranks(); first += at_once) {
    for (int64_t bin = 0; bin < bins.count; ++bin) {
      const int64_t begin = std::ssize(saved.order);
      for (int rank = first; rank < first + at_once; ++rank) {
        const Share its = exchange.rows_from(rank, bin);
        for (int64_t i = 0; i < its.count; ++i) {
          saved.order.push_back(static_cast<int32_t>(its.first + i));
        }
      }
      const Share rows{begin, std::ssize(saved.order) - begin};
      if (rows.count == 0) continue;
      saved.jobs.push_back({static_cast<size_t>(bins.first + bin), rows, {}});
      saved.jobs.back().mlp.set_source(first / at_once);
    }
  }
  if (std::ranges::is_sorted(saved.order)) return saved.order.clear();
  for (Job& job : saved.jobs)
    job.indices = part_of(std::span<const int32_t>(saved.order), job.rows);
}

void Mixture::receive(Pass& pass, ConstTensor input, Saved& saved) const {
  saved.exchange = RowExchange(pass, place_, place_.experts, lay_out(pass, input, saved));
  put_into_order(pass, saved);
  saved.came = pass.arena.take(input.dtype, saved.exchange.received(), input.cols);
  saved.before = pass.arena.take(input.dtype, saved.came.rows, expert_width());
}

Tensor Mixture::rows_to_send(Pass& pass, const Saved& saved, ConstTensor tokens) const {
  const Tensor rows = pass.arena.take(tokens.dtype, std::ssize(saved.tokens), tokens.cols);
  embedding(tokens, {}, saved.tokens, rows);
  return rows;
}

Tensor Mixture::as_they_came(Pass& pass, const Saved& saved, Tensor results) const {
  if (saved.order.empty()) return results;
  std::vector<int32_t> places(saved.order.size());
  for (size_t i = 0; i < places.size(); ++i) {
    places[static_cast<size_t>(saved.order[i])] = static_cast<int32_t>(i);
  }
  const Tensor rows = pass.arena.take(results.dtype, results.rows, results.cols);
  embedding(results, {}, places, rows);
  return rows;
}

void Mixture::project(Pass& pass, ConstTensor input, Saved& saved, Tensor before) const {
  RowExchange::Travel travel;
  if (exchanges()) {
    travel = saved.exchange.forth(pass, rows_to_send(pass, saved, input), saved.came);
  } else {
    saved.jobs.clear();
    const std::vector<int64_t> counts = lay_out(pass, input, saved);
    for (int64_t expert = 0, first = 0; expert < std::ssize(counts); ++expert) {
      const int64_t count = counts[static_cast<size_t>(expert)];
      const Share rows{std::exchange(first, first + count), count};
      const auto tokens = part_of(std::span<const int32_t>(saved.tokens), rows);
      if (count > 0) saved.jobs.push_back({static_cast<size_t>(expert), rows, tokens});
    }
    const int64_t shared = shared_width() * input.rows;
    saved.before = part_of(before, shared, std::ssize(saved.tokens), expert_width());
  }
  if (shared_) {
    shared_->project(pass, input, saved.shared, part_of(before, 0, input.rows, shared_width()));
  }
  travel.wait();
  for (Job& job : saved.jobs) {
    experts_[job.expert].project(pass, rows_of(pass, exchanges() ? saved.came : input, job),
                                 job.mlp, saved.before.row_range(job.rows.first, job.rows.count));
  }
}

void Mixture::activate(Pass& pass, Saved& saved) const {
  if (shared_) shared_->activate(pass, saved.shared);
  for (Job& job : saved.jobs) experts_[job.expert].activate(pass, job.mlp);
}

// In deterministic mode the ranks' parts of rows are summed before rows are added up, since the
// order of these sums would tell how many ranks there are; one of the ranks has the result then.
void Mixture::add_up(Pass& pass, const Saved& saved, Tensor rows, std::span<const double> weights,
                     Tensor output) const {
  Share tokens{0, output.rows};
  if (pass.slices > 1 && place_.size(Axis::tensor) > 1) {
    // Where experts lie over the tensor ranks, their rows are whole.
    const Tensor parts = lies_over_tensor_ranks() ? rows.row_range(0, saved.shared_rows) : rows;
    convert_layout(pass, place_, parts, {parts.rows, parts.cols}, kTensorPartial, kReplicated);
    if (lies_over_tensor_ranks()) tokens = own_tokens(output.rows);
    if (!lies_over_tensor_ranks() && place_.place(Axis::tensor) > 0) tokens.count = 0;
    zero(output);
  }
  const Share entries{tokens.first * each(), tokens.count * each()};
  add_up_rows(rows, part_of(std::span<const int32_t>(saved.places), entries),
              weights.empty() ? weights : part_of(weights, entries),
              output.row_range(tokens.first, tokens.count));
}

void Mixture::finish(Pass& pass, Saved& saved, Tensor output) const {
  const ArenaScope scope(pass.arena);
  const Tensor rows = pass.arena.take(output.dtype, std::ssize(saved.row_weights), output.cols);
  const Tensor own = experts_rows(saved, rows);
  const Tensor results =
      exchanges() ? pass.arena.take(output.dtype, saved.came.rows, output.cols) : own;
  for (Job& job : saved.jobs) {
    experts_[job.expert].finish(pass, job.mlp, results.row_range(job.rows.first, job.rows.count));
  }
  RowExchange::Travel travel;
  if (exchanges()) travel = saved.exchange.back(pass, as_they_came(pass, saved, results), own);
  if (shared_) shared_->finish(pass, saved.shared, rows.row_range(0, saved.shared_rows));
  travel.wait();
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
  const Tensor rows = pass.arena.take(type, std::ssize(saved.row_weights), gradient.cols);
  std::vector<double> row_gradients(saved.row_weights.size());
  const RowGradients found{rows, row_gradients};
  if (exchanges()) {
    backward_over_ranks(pass, output_gradient, saved, found);
  } else {
    const auto shared = static_cast<size_t>(saved.shared_rows);
    backward_shared(pass, output_gradient, saved, found);
    backward_experts(pass, saved.input, output_gradient,
                     std::span(saved.row_weights).subspan(shared), saved,
                     {experts_rows(saved, rows), found.weights.subspan(shared)});
  }
  add_up(pass, saved, rows, {}, gradient);
  backward_weights(pass, row_gradients, saved);
  return gradient;
}

void Mixture::backward_shared(Pass& pass, ConstTensor output_gradient, Saved& saved,
                              const RowGradients& found) const {
  if (!shared_) return;
  const Share all{0, saved.shared_rows};
  const size_t mark = pass.arena.mark();
  shared_->set_input(saved.shared, saved.input);
  copy(shared_->backward(
           pass, output_gradient,
           {part_of(std::span<const double>(saved.row_weights), all), part_of(found.weights, all)},
           saved.shared),
       found.rows.row_range(0, saved.shared_rows));
  if (!pass.split) pass.arena.release(mark);
}

void Mixture::backward_experts(Pass& pass, ConstTensor inputs, ConstTensor gradients,
                               std::span<const double> weights, Saved& saved,
                               const RowGradients& found) const {
  for (Job& job : saved.jobs) {
    const Mlp& expert = experts_[job.expert];
    const size_t mark = pass.arena.mark();
    expert.set_input(job.mlp, rows_of(pass, inputs, job));
    copy(expert.backward(pass, rows_of(pass, gradients, job),
                         {part_of(weights, job.rows), part_of(found.weights, job.rows)}, job.mlp),
         found.rows.row_range(job.rows.first, job.rows.count));
    if (!pass.split) pass.arena.release(mark);
  }
}

void Mixture::backward_over_ranks(Pass& pass, ConstTensor output_gradient, Saved& saved,
                                  const RowGradients& found) const {
  const RowExchange& exchange = saved.exchange;
  const auto shared = static_cast<size_t>(saved.shared_rows);
  const std::span<const double> own_weights = std::span(saved.row_weights).subspan(shared);
  const int64_t rows = exchange.received();
  const Tensor gradients = pass.arena.take(output_gradient.dtype, rows, output_gradient.cols);
  std::vector<double> came(static_cast<size_t>(rows)), dots(came.size());
  {
    RowExchange::Travel travel =
        exchange.forth(pass, rows_to_send(pass, saved, output_gradient), gradients);
    RowExchange::Travel weights_travel =
        exchange.forth(pass, column_of(own_weights), column_of(std::span(came)));
    backward_shared(pass, output_gradient, saved, found);
    travel.wait();
    weights_travel.wait();
  }
  std::vector<double> weights = came;
  for (size_t i = 0; i < saved.order.size(); ++i) {
    weights[i] = came[static_cast<size_t>(saved.order[i])];
  }
  const Tensor results = pass.arena.take(found.rows.dtype, rows, found.rows.cols);
  pass.has_others_rows = true;
  backward_experts(pass, saved.came, gradients, weights, saved, {results, dots});
  pass.has_others_rows = false;
  std::vector<double> dots_as_came = dots;
  for (size_t i = 0; i < saved.order.size(); ++i) {
    dots_as_came[static_cast<size_t>(saved.order[i])] = dots[i];
  }
  RowExchange::Travel travel =
      exchange.back(pass, as_they_came(pass, saved, results), experts_rows(saved, found.rows));
  exchange
      .back(pass, column_of(std::span<const double>(dots_as_came)),
            column_of(found.weights.subspan(shared)))
      .wait();
  travel.wait();
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
