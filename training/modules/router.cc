#include "training/modules/router.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "training/kernels/elementwise.h"

namespace tutti::training {
namespace {

constexpr const char* kBalanceLoss = "balance_loss";
constexpr const char* kZLoss = "z_loss";

RouterOptions checked(RouterOptions options) {
  const auto refuse = [](const std::string& what, const char* option, const std::string& remedy) {
    throw Error(ErrorCode::invalid_argument, what, {.where = option, .remedy = remedy});
  };
  if (options.experts < 1) {
    refuse(cat("a router cannot choose from ", options.experts, " experts"), "--experts",
           "give at least 1");
  }
  if (options.topk < 1 || options.topk > options.experts) {
    refuse(cat("a token cannot go to ", options.topk, " of ", options.experts, " experts"),
           "--topk", cat("give a number from 1 to ", options.experts));
  }
  if (options.groups < 1 || options.experts % options.groups != 0) {
    refuse(cat(options.experts, " experts cannot lie in ", options.groups, " groups"),
           "--expert-groups", "give a number that divides the experts");
  }
  const int64_t of_a_group = options.experts / options.groups;
  if (options.topk_groups < 1 || options.topk_groups > options.groups ||
      options.topk_groups * of_a_group < options.topk) {
    refuse(cat(options.topk_groups, " of ", options.groups, " groups have ",
               options.topk_groups * of_a_group, " experts, for a choice of ", options.topk),
           "--topk-groups",
           cat("give a number up to ", options.groups, " of groups that have ", "at least ",
               options.topk, " experts"));
  }
  for (const auto& [value, option] :
       {std::pair(options.balance_loss, "--balance-loss"), std::pair(options.z_loss, "--z-loss"),
        std::pair(options.capacity, "--capacity")}) {
    if (!(value >= 0 && std::isfinite(value))) {
      refuse(cat("this cannot be ", value), option, "give a finite number of at least 0");
    }
  }
  return options;
}

// Numbers of a tensor of the type of sums.
template <bool is_const, typename Body>
void with_rows(const BasicTensor<is_const>& tensor, const Body& body) {
  tensor.dtype == DType::f64 ? body(tensor.template values<double>())
                             : body(tensor.template values<float>());
}

std::vector<double> row_of(ConstTensor tensor, int64_t row) {
  std::vector<double> values(static_cast<size_t>(tensor.cols));
  with_rows(tensor, [&](const auto& all) {
    const auto from = all.begin() + row * tensor.cols;
    std::copy(from, from + tensor.cols, values.begin());
  });
  return values;
}

void set_row(Tensor tensor, int64_t row, std::span<const double> values) {
  with_rows(tensor, [&](const auto& all) {
    std::ranges::transform(values, all.begin() + row * tensor.cols, [](double value) {
      return static_cast<std::decay_t<decltype(all.front())>>(value);
    });
  });
}

double log_sum_exp(std::span<const double> values) {
  const double largest = std::ranges::max(values);
  double sum = 0;
  for (const double value : values) sum += std::exp(value - largest);
  return largest + std::log(sum);
}

// What the balance loss takes for a token's probabilities.
std::vector<double> normalized(std::vector<double> scores, ExpertScores kind) {
  if (kind == ExpertScores::softmax) return scores;
  const double sum = std::accumulate(scores.begin(), scores.end(), 0.0);
  for (double& score : scores) score /= sum;
  return scores;
}

// The gradient of x, where y = x / the sum of x, given that of y.
std::vector<double> normalized_backward(std::span<const double> x, std::span<const double> dy) {
  const double sum = std::accumulate(x.begin(), x.end(), 0.0);
  const double mean = std::inner_product(x.begin(), x.end(), dy.begin(), 0.0) / sum;
  std::vector<double> dx(x.size());
  for (size_t i = 0; i < x.size(); ++i) dx[i] = (dy[i] - mean) / sum;
  return dx;
}

// The numbers of the `count` largest, the largest first; of equals the first.
std::vector<int32_t> largest(std::span<const double> values, int64_t count) {
  std::vector<int32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  const auto end = order.begin() + count;
  std::partial_sort(order.begin(), end, order.end(), [&](int32_t a, int32_t b) {
    const double left = values[static_cast<size_t>(a)], right = values[static_cast<size_t>(b)];
    return left > right || (left == right && a < b);
  });
  order.erase(end, order.end());
  return order;
}

// The scores of other groups are 0.
void keep_best_groups(std::vector<double>& scores, int64_t groups, int64_t kept) {
  const size_t size = scores.size() / static_cast<size_t>(groups);
  std::vector<double> sums;
  for (size_t first = 0; first < scores.size(); first += size) {
    const std::span<const double> group(scores.data() + first, size);
    double sum = 0;
    for (const int32_t best : largest(group, std::min<int64_t>(2, std::ssize(group)))) {
      sum += group[static_cast<size_t>(best)];
    }
    sums.push_back(sum);
  }
  const std::vector<int32_t> best = largest(sums, kept);
  for (size_t i = 0; i < scores.size(); ++i) {
    if (std::ranges::find(best, static_cast<int32_t>(i / size)) == best.end()) scores[i] = 0;
  }
}

}  // namespace

Router::Router(ParameterTable& table, const std::string& name, const RouterOptions& options,
               int64_t width, int64_t context, int64_t layer, std::shared_ptr<ExpertLoad> load)
    : options_(checked(options)),
      context_(context),
      layer_(layer),
      load_(std::move(load)),
      gate_(table, name + ".gate", width, options.experts, {.bias = false}) {}

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
    const Tensor logits = gate_.forward(pass, input, saved.gate);
    logits.dtype == saved.logits.dtype ? copy(logits, saved.logits) : convert(logits, saved.logits);
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
  if (options_.groups > 1) keep_best_groups(chosen_from, options_.groups, options_.topk_groups);
  const std::vector<int32_t> experts = largest(chosen_from, options_.topk);
  double sum = 1;
  if (options_.renormalize) {
    sum = 0;
    for (const int32_t expert : experts) sum += scores[static_cast<size_t>(expert)];
  }
  for (const int32_t expert : experts) {
    saved.choices.push_back(expert);
    saved.weights.push_back(options_.weight_scale * scores[static_cast<size_t>(expert)] / sum);
  }
}

// Sample by sample, so that what is dropped of one does not depend on the others.
void Router::drop(const Pass& pass, Saved& saved) const {
  const int64_t most = std::max<int64_t>(
      1, static_cast<int64_t>(std::ceil(options_.capacity * static_cast<double>(options_.topk) *
                                        static_cast<double>(context_) /
                                        static_cast<double>(options_.experts))));
  const auto each = static_cast<size_t>(options_.topk);
  for_each_run(*pass.batch, {0, std::ssize(saved.choices) / options_.topk},
               [&](const TokenRun& run) {
                 std::vector<size_t> order(static_cast<size_t>(run.count) * each);
                 std::iota(order.begin(), order.end(), static_cast<size_t>(run.row) * each);
                 if (options_.full == FullExpert::by_score) {
                   std::ranges::stable_sort(order, std::greater<>(),
                                            [&](size_t i) { return saved.weights[i]; });
                 }
                 std::vector<int64_t> taken(static_cast<size_t>(options_.experts));
                 for (const size_t choice : order) {
                   if (taken[static_cast<size_t>(saved.choices[choice])]++ < most) continue;
                   saved.experts[choice] = -1;
                 }
               });
}

void Router::count(const Saved& saved) const {
  if (load_ == nullptr) return;
  for (const int32_t expert : saved.choices) load_->add(layer_, expert, 1);
  load_->add_dropped(layer_, std::ranges::count(saved.experts, -1));
}

// So that the mean over the batch's samples of the sum over their tokens is the loss.
std::vector<double> Router::balance_terms() const {
  std::vector<double> terms(static_cast<size_t>(options_.experts));
  const bool together = options_.balance == BalanceScope::all_layers;
  const int64_t first = together ? 0 : layer_;
  const int64_t end = together ? load_->layers() : layer_ + 1;
  double choices = 0;
  for (int64_t layer = first; layer < end; ++layer) {
    for (int64_t expert = 0; expert < options_.experts; ++expert) {
      const auto count = static_cast<double>(load_->of(layer, expert));
      terms[static_cast<size_t>(expert)] += count;
      choices += count;
    }
  }
  if (choices == 0) return terms;
  const double tokens = choices / static_cast<double>(options_.topk);
  const double factor =
      static_cast<double>(options_.experts) / static_cast<double>(context_ * (end - first));
  for (double& term : terms) term *= factor / tokens;
  return terms;
}

void Router::add_losses(Pass& pass, const Saved& saved) const {
  if (options_.balance_loss > 0) {
    std::vector<double> sums(static_cast<size_t>(options_.experts));
    for (int64_t token = 0; token < saved.scores.rows; ++token) {
      const std::vector<double> scores = normalized(row_of(saved.scores, token), options_.scores);
      std::ranges::transform(sums, scores, sums.begin(), std::plus<>());
    }
    // When backward has counted.
    pass.add_loss(kBalanceLoss, Later<double>::when([this, sums = std::move(sums)] {
                    load_->share();
                    const std::vector<double> terms = balance_terms();
                    return std::inner_product(terms.begin(), terms.end(), sums.begin(), 0.0);
                  }));
  }
  if (options_.z_loss > 0) {
    double sum = 0;
    for (int64_t token = 0; token < saved.logits.rows; ++token) {
      sum += std::pow(log_sum_exp(row_of(saved.logits, token)), 2);
    }
    pass.add_loss(kZLoss, sum / static_cast<double>(context_));
  }
}

// Of a token's chosen scores, given those of their weights.
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
  const double balance = options_.balance_loss * pass.sample_scale;
  const double z = 2 * options_.z_loss * pass.sample_scale / static_cast<double>(context_);
  std::vector<double> terms;
  if (options_.balance_loss > 0) {
    load_->share();
    terms = balance_terms();
    for (double& term : terms) term *= balance;
  }
  const Tensor logits_gradient =
      pass.arena.take(saved.logits.dtype, saved.logits.rows, saved.logits.cols);
  for (int64_t token = 0; token < saved.scores.rows; ++token) {
    const std::vector<double> scores = row_of(saved.scores, token);
    std::vector<double> gradient(scores.size());
    if (!terms.empty()) {
      gradient =
          options_.scores == ExpertScores::softmax ? terms : normalized_backward(scores, terms);
    }
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
  return gate_.backward(pass, gradient, saved.gate);
}

}  // namespace tutti::training
