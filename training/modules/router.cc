#include "training/modules/router.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "training/core/random.h"
#include "training/kernels/elementwise.h"
#include "training/kernels/rows.h"

namespace tutti::training {
namespace {

constexpr const char* kBalanceLoss = "balance_loss";
constexpr const char* kZLoss = "z_loss";
constexpr double kLeastSum = 1e-20;                    // avoids division by 0
constexpr uint64_t kJitterStream = uint64_t{1} << 32;  // does not coincide with dropout's streams

RouterOptions checked(RouterOptions options) {
  const auto refuse = [](const std::string& what, const char* option, const std::string& remedy) {
    throw Error(ErrorCode::invalid_argument, what, {.where = option, .remedy = remedy});
  };
  if (options.experts < 1) {
    refuse(cat("a router cannot choose from ", options.experts, " experts"), "--experts",
           "use at least 1");
  }
  if (options.topk < 1 || options.topk > options.experts) {
    refuse(cat("a token cannot be routed to ", options.topk, " of ", options.experts, " experts"),
           "--topk", cat("use a number from 1 to ", options.experts));
  }
  if (options.groups < 1 || options.experts % options.groups != 0) {
    refuse(cat(options.experts, " experts cannot be divided into ", options.groups, " groups"),
           "--expert-groups", "use a number that divides the number of experts");
  }
  const int64_t of_a_group = options.experts / options.groups;
  if (options.topk_groups < 1 || options.topk_groups > options.groups ||
      options.topk_groups * of_a_group < options.topk) {
    refuse(cat(options.topk_groups, " of ", options.groups, " groups have ",
               options.topk_groups * of_a_group, " experts, for a choice of ", options.topk),
           "--topk-groups",
           cat("use a number up to ", options.groups, " of groups that have ", "at least ",
               options.topk, " experts"));
  }
  for (const auto& [value, option] :
       {std::pair(options.balance_loss, "--balance-loss"), std::pair(options.z_loss, "--z-loss"),
        std::pair(options.bias_rate, "--balance-bias"),
        std::pair(options.capacity, "--capacity")}) {
    if (!(value >= 0 && std::isfinite(value))) {
      refuse(cat(option, " cannot be ", value), option, "use a finite number of at least 0");
    }
  }
  if (!(options.jitter >= 0 && options.jitter < 1)) {
    refuse(cat("invalid jitter ", options.jitter), "--router-jitter",
           "use a number of at least 0 and below 1");
  }
  return options;
}

int64_t positions_of(const MicroBatch& batch, int64_t tokens) {
  return batch.positions > 0 ? batch.positions : tokens / batch.samples;
}

// Returns, for each choice, true if it is dropped because its expert already keeps `most` other
// choices of the sample. `numbers`: the indices of the experts of all choices of all samples, then
// the weights of these choices.
std::vector<bool> dropped_choices(std::span<const double> numbers, int64_t samples, int64_t most,
                                  const RouterOptions& options) {
  const size_t all = numbers.size() / 2;
  const size_t of_a_sample = all / static_cast<size_t>(samples);
  std::vector<bool> dropped(all);
  for (size_t first = 0; first < all; first += of_a_sample) {
    std::vector<size_t> order(of_a_sample);
    std::iota(order.begin(), order.end(), first);
    if (options.full == FullExpert::by_score) {
      std::ranges::stable_sort(order, std::greater<>(), [&](size_t i) { return numbers[all + i]; });
    }
    std::vector<int64_t> taken(static_cast<size_t>(options.experts));
    for (const size_t choice : order) {
      dropped[choice] = taken[static_cast<size_t>(numbers[choice])]++ >= most;
    }
  }
  return dropped;
}

}  // namespace

Router::Router(ParameterTable& table, const std::string& name, const RouterOptions& options,
               int64_t width, int64_t context, int64_t layer, std::shared_ptr<ExpertLoad> load)
    : options_(checked(options)),
      context_(context),
      layer_(layer),
      load_(std::move(load)),
      gate_(table, name + ".gate", width, options.experts,
            {.bias = false, .keeps_precision = true}) {}

std::vector<std::string> Router::losses() const {
  std::vector<std::string> names;
  if (options_.balance_loss > 0) names.emplace_back(kBalanceLoss);
  if (options_.z_loss > 0) names.emplace_back(kZLoss);
  return names;
}

void Router::take(Pass& pass, int64_t rows, Saved& saved) const {
  saved.logits = pass.arena.take(value_type(pass.dtype), rows, options_.experts);
  saved.scores = pass.arena.take(value_type(pass.dtype), rows, options_.experts);
}

void Router::forward(Pass& pass, ConstTensor input, Saved& saved) const {
  {
    const ArenaScope scope(pass.arena);
    const Tensor logits = gate_.forward(pass, jittered(pass, input), saved.gate);
    convert(logits, saved.logits);
  }
  saved.choices.clear();
  saved.weights.clear();
  for (int64_t token = 0; token < input.rows; ++token) choose(saved, token);
  saved.experts = saved.choices;
  if (options_.capacity > 0) drop(pass, saved);
  if (!pass.training || pass.weightless()) return;
  if (!pass.recomputing) count(saved);
  add_losses(pass, saved);
}

ConstTensor Router::jittered(Pass& pass, ConstTensor input) const {
  if (options_.jitter == 0 || !pass.training) return input;
  const Tensor copied = pass.arena.take(input.dtype, input.rows, input.cols);
  copy(input, copied);
  multiply_by_jitter(pass, copied);
  return copied;
}

void Router::choose(Saved& saved, int64_t token) const {
  std::vector<double> scores = row_of(saved.logits, token);
  if (options_.scores == ExpertScores::softmax) {
    const double all = log_sum_exp(scores);
    for (double& score : scores) score = std::exp(score - all);
  } else {
    for (double& score : scores) score = 1 / (1 + std::exp(-score));
  }
  set_row(saved.scores, token, scores);
  std::vector<double> chosen_from = scores;
  if (options_.bias_rate > 0) {
    std::ranges::transform(chosen_from, load_->bias(layer_), chosen_from.begin(), std::plus<>());
  }
  if (options_.groups > 1) keep_best_groups(chosen_from, options_.groups, options_.topk_groups);
  const std::vector<int32_t> experts = largest(chosen_from, options_.topk);
  double sum = 1;
  if (options_.renormalize) {
    sum = kLeastSum;
    for (const int32_t expert : experts) sum += scores[static_cast<size_t>(expert)];
  }
  for (const int32_t expert : experts) {
    saved.choices.push_back(expert);
    saved.weights.push_back(options_.weight_scale * scores[static_cast<size_t>(expert)] / sum);
  }
}

// Drops choices. Works sample by sample, so that the dropped choices of one sample do not depend on
// the other samples. If tokens are divided over ranks, each context rank determines which choices
// of all ranks are dropped.
void Router::drop(Pass& pass, Saved& saved) const {
  const MicroBatch& batch = *pass.batch;
  const auto k = static_cast<size_t>(options_.topk);
  const int64_t tokens = std::ssize(saved.choices) / options_.topk;
  const int64_t positions = positions_of(batch, tokens);
  std::vector<size_t> place;  // index of each of this rank's choices among all samples' choices
  for_each_run(batch, {0, tokens}, [&](const TokenRun& run) {
    const auto first = static_cast<size_t>(run.sample * positions + run.position) * k;
    for (size_t i = 0; i < static_cast<size_t>(run.count) * k; ++i) place.push_back(first + i);
  });
  const auto all = static_cast<size_t>(batch.samples * positions) * k;
  std::vector<double> numbers(2 * all);  // indices of the chosen experts, then weights
  for (size_t i = 0; i < place.size(); ++i) {
    numbers[place[i]] = saved.choices[i];
    numbers[all + place[i]] = saved.weights[i];
  }
  if (batch.partition != nullptr) options_.sum(pass, Axis::context, numbers);
  const std::vector<bool> dropped =
      dropped_choices(numbers, batch.samples, most_of_a_sample(), options_);
  for (size_t i = 0; i < place.size(); ++i) {
    if (dropped[place[i]]) saved.experts[i] = -1;
  }
}

// Returns the capacity of an expert, in choices per sample.
int64_t Router::most_of_a_sample() const {
  const double even =
      static_cast<double>(options_.topk * context_) / static_cast<double>(options_.experts);
  return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(options_.capacity * even)));
}

void Router::count(const Saved& saved) const {
  for (const int32_t expert : saved.choices) load_->add(layer_, expert, 1);
  load_->add_dropped(layer_, std::ranges::count(saved.experts, -1));
}

std::vector<double> Router::global_counts() const {
  std::vector<double> counts(static_cast<size_t>(options_.experts));
  for (int64_t layer = 0; layer < load_->layers(); ++layer) {
    if (options_.balance == BalanceOf::each_layer && layer != layer_) continue;
    for (int64_t expert = 0; expert < options_.experts; ++expert) {
      counts[static_cast<size_t>(expert)] += static_cast<double>(load_->of(layer, expert));
    }
  }
  return counts;
}

// With these factors a sample's loss is the sum of factor * score over its tokens and experts, and
// the batch's loss is the mean of its samples' losses.
std::vector<double> Router::balance_terms(const std::vector<double>& counts) const {
  const double choices = std::accumulate(counts.begin(), counts.end(), 0.0);
  std::vector<double> terms = counts;
  if (choices == 0) return terms;
  const int64_t layers = options_.balance == BalanceOf::all_layers ? load_->layers() : 1;
  const double tokens = choices / static_cast<double>(options_.topk);
  const double factor =
      static_cast<double>(options_.experts) / static_cast<double>(context_ * layers);
  for (double& term : terms) term *= factor / tokens;
  return terms;
}

// Counts how often each expert is chosen in each sample, over all context ranks.
std::vector<double> Router::counts_of_samples(Pass& pass, const Saved& saved) const {
  std::vector<double> counts(static_cast<size_t>(pass.batch->samples * options_.experts));
  for_each_run(*pass.batch, {0, saved.scores.rows}, [&](const TokenRun& run) {
    for (int64_t i = run.row * options_.topk; i < (run.row + run.count) * options_.topk; ++i) {
      ++counts[static_cast<size_t>(run.sample * options_.experts +
                                   saved.choices[static_cast<size_t>(i)])];
    }
  });
  if (pass.batch->partition != nullptr) options_.sum(pass, Axis::context, counts);
  return counts;
}

template <typename Body>
void Router::for_each_balance(Pass& pass, const Saved& saved, const Body& body) const {
  const int64_t tokens = saved.scores.rows;
  if (options_.balance_scope == BalanceScope::global_batch) {
    load_->share();
    return body(0, tokens, balance_terms(global_counts()));
  }
  const std::vector<double> counts = counts_of_samples(pass, saved);
  const auto experts = static_cast<size_t>(options_.experts);
  if (options_.balance_scope == BalanceScope::micro_batch) {
    std::vector<double> sums(experts);
    for (size_t i = 0; i < counts.size(); ++i) sums[i % experts] += counts[i];
    return body(0, tokens, balance_terms(sums));
  }
  for_each_run(*pass.batch, {0, tokens}, [&](const TokenRun& run) {
    const auto first = counts.begin() + run.sample * options_.experts;
    body(run.row, run.count, balance_terms({first, first + options_.experts}));
  });
}

// Sums the scores of `count` tokens from `first` on, by expert.
std::vector<double> Router::sums_of_scores(const Saved& saved, int64_t first, int64_t count) const {
  std::vector<double> sums(static_cast<size_t>(options_.experts));
  for (int64_t token = first; token < first + count; ++token) {
    const std::vector<double> scores = normalized(row_of(saved.scores, token), options_.scores);
    std::ranges::transform(sums, scores, sums.begin(), std::plus<>());
  }
  return sums;
}

void Router::add_losses(Pass& pass, const Saved& saved) const {
  const int64_t tokens = saved.scores.rows;
  if (options_.balance_loss > 0 && options_.balance_scope == BalanceScope::global_batch) {
    // get() is called after backward, when the counts of the global batch are complete.
    pass.add_loss(kBalanceLoss,
                  Later<double>::when([this, sums = sums_of_scores(saved, 0, tokens)] {
                    load_->share();
                    const std::vector<double> terms = balance_terms(global_counts());
                    return std::inner_product(terms.begin(), terms.end(), sums.begin(), 0.0);
                  }));
  } else if (options_.balance_loss > 0) {
    double sum = 0;
    for_each_balance(pass, saved, [&](int64_t first, int64_t count, const auto& terms) {
      const std::vector<double> sums = sums_of_scores(saved, first, count);
      sum += std::inner_product(terms.begin(), terms.end(), sums.begin(), 0.0);
    });
    pass.add_loss(kBalanceLoss, sum);
  }
  if (options_.z_loss > 0) {
    double sum = 0;
    for (int64_t token = 0; token < tokens; ++token) {
      sum += std::pow(log_sum_exp(row_of(saved.logits, token)), 2);
    }
    pass.add_loss(kZLoss, sum / static_cast<double>(context_));
  }
}

// Multiplies by factors that depend on token and column alone, not on the rank.
void Router::multiply_by_jitter(Pass& pass, Tensor values) const {
  const ArenaScope scope(pass.arena);
  const MicroBatch& batch = *pass.batch;
  const auto limit = static_cast<float>(options_.jitter);
  const uint64_t stream = kJitterStream + static_cast<uint64_t>(layer_);
  const int64_t positions = positions_of(batch, values.rows);
  const Tensor wide = pass.arena.take(value_type(values.dtype), values.rows, values.cols);
  convert(values, wide);
  for_each_run(batch, {0, values.rows}, [&](const TokenRun& run) {
    const uint64_t sample = batch.first_sample + static_cast<uint64_t>(run.sample);
    for (int64_t i = 0; i < run.count; ++i) {
      uint64_t index =
          (sample * static_cast<uint64_t>(positions) + static_cast<uint64_t>(run.position + i)) *
          static_cast<uint64_t>(values.cols);
      std::vector<double> row = row_of(wide, run.row + i);
      for (double& value : row) {
        value *= 1 + scale_symmetric(random_bits(pass.seed, stream, index++), limit);
      }
      set_row(wide, run.row + i, row);
    }
  });
  convert(wide, values);
}

// Writes the gradients of the balance loss with respect to all scores.
void Router::add_balance_gradients(Pass& pass, const Saved& saved, Tensor gradients) const {
  if (options_.balance_loss == 0) return;
  for_each_balance(pass, saved, [&](int64_t first, int64_t count, std::vector<double> terms) {
    for (double& term : terms) term *= options_.balance_loss * pass.sample_scale;
    for (int64_t token = first; token < first + count; ++token) {
      set_row(gradients, token,
              options_.scores == ExpertScores::softmax
                  ? terms
                  : normalized_backward(row_of(saved.scores, token), terms));
    }
  });
}

// Adds the gradients of a token's chosen scores, given the gradients of the experts' weights.
void Router::add_weight_gradients(const Saved& saved, int64_t token,
                                  std::span<const double> weight_gradients,
                                  std::span<const double> scores,
                                  std::vector<double>& gradient) const {
  const size_t first = static_cast<size_t>(token * options_.topk);
  std::vector<double> chosen, given;
  for (size_t i = first; i < first + static_cast<size_t>(options_.topk); ++i) {
    chosen.push_back(scores[static_cast<size_t>(saved.choices[i])]);
    given.push_back(options_.weight_scale * weight_gradients[i]);
  }
  if (options_.renormalize) given = normalized_backward(chosen, given);
  for (size_t i = 0; i < given.size(); ++i) {
    gradient[static_cast<size_t>(saved.choices[first + i])] += given[i];
  }
}

Tensor Router::backward(Pass& pass, std::span<const double> weight_gradients, Saved& saved) const {
  const double z = 2 * options_.z_loss * pass.sample_scale / static_cast<double>(context_);
  const Tensor logits_gradient =
      pass.arena.take(saved.logits.dtype, saved.logits.rows, saved.logits.cols);
  zero(logits_gradient);
  add_balance_gradients(pass, saved, logits_gradient);
  for (int64_t token = 0; token < saved.scores.rows; ++token) {
    const std::vector<double> scores = row_of(saved.scores, token);
    // gradient with respect to the scores
    std::vector<double> gradient = row_of(logits_gradient, token);
    add_weight_gradients(saved, token, weight_gradients, scores, gradient);
    const double mean = std::inner_product(scores.begin(), scores.end(), gradient.begin(), 0.0);
    for (size_t i = 0; i < scores.size(); ++i) {
      gradient[i] = options_.scores == ExpertScores::softmax
                        ? scores[i] * (gradient[i] - mean)
                        : scores[i] * (1 - scores[i]) * gradient[i];
    }
    if (options_.z_loss > 0) {
      const std::vector<double> logits = row_of(saved.logits, token);
      const double all = log_sum_exp(logits);
      for (size_t i = 0; i < gradient.size(); ++i) {
        gradient[i] += z * all * std::exp(logits[i] - all);
      }
    }
    set_row(logits_gradient, token, gradient);
  }
  Tensor gradient = logits_gradient;
  if (pass.dtype != gradient.dtype) {
    gradient = pass.arena.take(pass.dtype, gradient.rows, gradient.cols);
    convert(logits_gradient, gradient);
  }
  saved.gate.input = jittered(pass, saved.gate.input);
  const Tensor input_gradient = gate_.backward(pass, gradient, saved.gate);
  if (options_.jitter > 0) multiply_by_jitter(pass, input_gradient);
  return input_gradient;
}

}  // namespace tutti::training
