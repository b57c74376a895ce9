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

// Sets each choice's number to that of the choice's row, or to 0 if the choice has no row.
void by_choice(const Experts::Saved& experts, std::span<const double> rows,
               std::span<double> choices) {
  for (size_t i = 0; i < choices.size(); ++i) {
    choices[i] = experts.places[i] < 0 ? 0 : rows[static_cast<size_t>(experts.places[i])];
  }
}

}  // namespace

Mixture::Mixture(ParameterTable& table, const std::string& name, const MixtureOptions& options,
                 const MlpOptions& mlp, int64_t context, int64_t layer,
                 const std::shared_ptr<ExpertLoad>& load)
    : place_(table.mesh()),
      router_(table, name, options.router, mlp.width, context, layer, load),
      experts_(table, name + ".experts", options.router.experts, mlp) {
  if (options.shared_hidden == 0) return;
  shared_.emplace(table, cat(name, '.', options.shared_name), shared_expert(mlp, options));
  if (!options.shared_gate) return;
  shared_gate_.emplace(table, cat(name, '.', options.shared_name, "_gate"), mlp.width, 1,
                       LinearOptions{.bias = false, .keeps_precision = true});
}

Tensor Mixture::take(Pass& pass, DType type, int64_t rows, Saved& saved) const {
  router_.take(pass, rows, saved.router);
  const int64_t of_experts = exchanges() ? 0 : topk() * experts_.before_width();
  return pass.arena.take(type, rows, shared_width() + of_experts);
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
  if (!spans_tensor_ranks()) return {0, tokens};
  return even_share(tokens, place_.place(Axis::tensor), place_.size(Axis::tensor));
}

// Returns true if a token's row is sent only once to each host. Returns false in deterministic
// mode, because the sums that hosts compute depend on the placement of ranks.
bool Mixture::relays(const Pass& pass) const {
  return exchanges() && topk() > 1 && pass.mesh != nullptr && pass.slices == 1 &&
         pass.mesh->by_hosts(place_.experts).hosts.count() > 1;
}

void Mixture::route(Pass& pass, ConstTensor input, Saved& saved) const {
  router_.forward(pass, input, saved.router);
  std::vector<int32_t> chosen(saved.router.experts.size(), -1);
  if (!pass.weightless()) {
    const Share own = own_tokens(input.rows);
    const auto first = own.first * topk(), end = (own.first + own.count) * topk();
    std::copy(saved.router.experts.begin() + first, saved.router.experts.begin() + end,
              chosen.begin() + first);
  }
  const ExpertChoices choices{chosen, saved.router.weights, topk()};
  saved.relay.reset();
  if (relays(pass)) {
    saved.relay.emplace(pass, place_.experts, choices,
                        [this](int64_t expert) { return experts_.rank_of(expert); });
    saved.arrived = pass.arena.take(input.dtype, saved.relay->arrived(), input.cols);
    experts_.lay_out(pass, saved.relay->choices(), input, saved.experts,
                     &pass.mesh->by_hosts(place_.experts));
  } else {
    experts_.lay_out(pass, choices, input, saved.experts);
  }
  set_entries(pass, input, saved);
}

void Mixture::set_entries(Pass& pass, ConstTensor input, Saved& saved) const {
  const auto tokens = static_cast<size_t>(input.rows);
  const auto k = static_cast<size_t>(topk()), all = static_cast<size_t>(each());
  saved.shared_rows = shared_ ? input.rows : 0;
  saved.shared_weights = shared_ ? shared_weights(pass, input, saved) : std::vector<double>();
  saved.rows = saved.relay ? std::ssize(saved.relay->tokens()) : saved.experts.rows();
  const std::span<const int32_t> places =
      saved.relay ? saved.relay->places() : std::span<const int32_t>(saved.experts.places);
  saved.places.assign(tokens * all, -1);
  saved.weights.assign(tokens * all, 0);
  for (size_t token = 0; token < tokens; ++token) {
    for (size_t choice = 0; choice < k; ++choice) {
      const int32_t place = places[token * k + choice];
      if (place < 0) continue;
      saved.places[token * all + choice] = static_cast<int32_t>(saved.shared_rows) + place;
      // The sum that a host returns is already weighted.
      saved.weights[token * all + choice] =
          saved.relay ? 1 : saved.router.weights[token * k + choice];
    }
    if (!shared_) continue;
    saved.places[token * all + k] = static_cast<int32_t>(token);
    saved.weights[token * all + k] = saved.shared_weights[token];
  }
}

Tensor Mixture::rows_to_relay(Pass& pass, const Saved& saved, ConstTensor tokens) const {
  const Tensor rows = pass.arena.take(tokens.dtype, saved.rows, tokens.cols);
  embedding(tokens, {}, saved.relay->tokens(), rows);
  return rows;
}

void Mixture::project(Pass& pass, ConstTensor input, Saved& saved, Tensor before) const {
  if (!exchanges()) route(pass, input, saved);
  RowExchange::Transfer transfer;
  if (saved.relay) {
    transfer = saved.relay->dispatch(pass, rows_to_relay(pass, saved, input), saved.arrived);
  } else {
    transfer = experts_.send(pass, input, saved.experts);
  }
  if (shared_) {
    shared_->project(pass, input, saved.shared, part_of(before, 0, input.rows, shared_width()));
  }
  transfer.wait();
  if (saved.relay) experts_.send(pass, saved.arrived, saved.experts).wait();
  const int64_t rows = exchanges() ? 0 : saved.experts.rows();
  experts_.project(pass, input, saved.experts,
                   part_of(before, shared_width() * input.rows, rows, experts_.before_width()));
}

void Mixture::activate(Pass& pass, Saved& saved) const {
  if (shared_) shared_->activate(pass, saved.shared);
  experts_.activate(pass, saved.experts);
}

// Adds up rows to the tokens' outputs. In deterministic mode the ranks' terms of rows are summed
// first, so that the order of the sums does not depend on the number of ranks. Only one of the
// ranks then has a token's output; on the others the output is 0.
void Mixture::add_up(Pass& pass, const Saved& saved, Tensor rows, std::span<const double> weights,
                     Tensor output) const {
  Share tokens{0, output.rows};
  if (pass.slices > 1 && place_.size(Axis::tensor) > 1) {
    // If the tensor-parallel ranks own whole experts, the experts' rows are complete, and only the
    // shared expert's rows are terms of sums.
    const Tensor parts = spans_tensor_ranks() ? rows.row_range(0, saved.shared_rows) : rows;
    convert_layout(pass, place_, parts, {parts.rows, parts.cols}, kTensorPartial, kReplicated);
    if (spans_tensor_ranks()) tokens = own_tokens(output.rows);
    if (!spans_tensor_ranks() && place_.place(Axis::tensor) > 0) tokens.count = 0;
    zero(output);
  }
  const auto first = static_cast<size_t>(tokens.first * each());
  const auto count = static_cast<size_t>(tokens.count * each());
  add_up_rows(rows, std::span<const int32_t>(saved.places).subspan(first, count),
              weights.empty() ? weights : weights.subspan(first, count),
              output.row_range(tokens.first, tokens.count));
}

void Mixture::finish(Pass& pass, Saved& saved, Tensor output) const {
  const ArenaScope scope(pass.arena);
  const Tensor rows = pass.arena.take(output.dtype, saved.shared_rows + saved.rows, output.cols);
  const Tensor own = experts_rows(saved, rows);
  RowExchange::Transfer transfer;
  if (saved.relay) {
    const Tensor inner = pass.arena.take(output.dtype, saved.experts.rows(), output.cols);
    const Tensor sums = pass.arena.take(output.dtype, saved.arrived.rows, output.cols);
    experts_.finish(pass, saved.experts, inner).wait();
    add_up_rows(inner, saved.experts.places, saved.relay->choices().weights, sums);
    transfer = saved.relay->return_rows(pass, sums, own);
  } else {
    transfer = experts_.finish(pass, saved.experts, own);
  }
  if (shared_) shared_->finish(pass, saved.shared, rows.row_range(0, saved.shared_rows));
  transfer.wait();
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
  const Tensor rows = pass.arena.take(type, saved.shared_rows + saved.rows, gradient.cols);
  std::vector<double> choices(saved.router.experts.size()), shared(saved.shared_weights.size());
  const auto meanwhile = [&] {
    backward_shared(pass, output_gradient, saved, rows.row_range(0, saved.shared_rows), shared);
  };
  const Tensor own = experts_rows(saved, rows);
  if (saved.relay) {
    backward_relayed(pass, output_gradient, saved, own, choices, meanwhile);
  } else {
    std::vector<double> of_rows(static_cast<size_t>(saved.rows));
    experts_.backward(pass, saved.input, output_gradient, saved.experts, {own, of_rows}, meanwhile);
    by_choice(saved.experts, of_rows, choices);
  }
  add_up(pass, saved, rows, {}, gradient);
  backward_weights(pass, choices, shared, saved);
  return gradient;
}

void Mixture::backward_shared(Pass& pass, ConstTensor output_gradient, Saved& saved, Tensor rows,
                              std::span<double> weights) const {
  if (!shared_) return;
  const size_t mark = pass.arena.mark();
  shared_->set_input(saved.shared, saved.input);
  copy(shared_->backward(pass, output_gradient, {saved.shared_weights, weights}, saved.shared),
       rows);
  if (!pass.split) pass.arena.release(mark);
}

void Mixture::backward_relayed(Pass& pass, ConstTensor output_gradient, Saved& saved, Tensor rows,
                               std::span<double> choices,
                               const std::function<void()>& meanwhile) const {
  const HostRelay& relay = *saved.relay;
  const auto like_arrived = [&](int64_t count) {
    return pass.arena.take(rows.dtype, count, rows.cols);
  };
  const Tensor arrived = like_arrived(relay.arrived());
  RowExchange::Transfer transfer =
      relay.dispatch(pass, rows_to_relay(pass, saved, output_gradient), arrived);
  meanwhile();
  transfer.wait();
  const Tensor inner = like_arrived(saved.experts.rows()), sums = like_arrived(relay.arrived());
  std::vector<double> of_rows(static_cast<size_t>(inner.rows));
  experts_.backward(pass, saved.arrived, arrived, saved.experts, {inner, of_rows}, [] {});
  add_up_rows(inner, saved.experts.places, {}, sums);
  transfer = relay.return_rows(pass, sums, rows);
  std::vector<double> of_arrived(saved.experts.places.size());
  by_choice(saved.experts, of_rows, of_arrived);
  relay.return_numbers(pass, of_arrived, choices);
  transfer.wait();
}

void Mixture::backward_weights(Pass& pass, std::span<const double> choices,
                               std::span<const double> shared, Saved& saved) const {
  const auto tokens = static_cast<size_t>(saved.input.rows);
  const auto k = static_cast<size_t>(topk());
  Tensor all = pass.arena.take(DType::f64, saved.input.rows, each());
  for (size_t token = 0; token < tokens; ++token) {
    double* const its = all.values<double>().data() + token * static_cast<size_t>(each());
    std::ranges::copy(choices.subspan(token * k, k), its);
    if (shared_) its[k] = shared[token];
  }
  all = convert_layout(pass, place_, all, {all.rows, all.cols}, kTensorPartial, kReplicated);
  std::vector<double> chosen, of_shared;
  for (size_t token = 0; token < tokens; ++token) {
    const double* const its = all.values<double>().data() + token * static_cast<size_t>(each());
    chosen.insert(chosen.end(), its, its + k);
    if (!shared_gate_) continue;
    const double weight = saved.shared_weights[token];
    of_shared.push_back(its[k] * weight * (1 - weight));
  }
  saved.input_gradient = router_.backward(pass, chosen, saved.router);
  if (!shared_gate_) return;
  const Tensor wide = pass.arena.take(value_type(pass.dtype), saved.input.rows, 1);
  set_row(wide.reshaped(1, wide.rows), 0, of_shared);
  Tensor gradient = wide;
  if (pass.dtype != wide.dtype) {
    gradient = pass.arena.take(pass.dtype, wide.rows, 1);
    convert(wide, gradient);
  }
  const Tensor more = shared_gate_->backward(pass, gradient, saved.shared_gate);
  add(saved.input_gradient, more, saved.input_gradient);
}

}  // namespace tutti::training
