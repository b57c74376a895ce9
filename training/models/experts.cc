#include "training/models/experts.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/text.h"
#include "training/kernels/elementwise.h"
#include "training/kernels/embedding.h"

namespace tutti::training {
namespace {

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

// Returns the rows of a job.
ConstTensor rows_of(Pass& pass, ConstTensor from, const Experts::Job& job) {
  if (job.indices.empty()) return from.row_range(job.rows.first, job.rows.count);
  const Tensor rows = pass.arena.take(from.dtype, job.rows.count, from.cols);
  embedding(from, {}, job.indices, rows);
  return rows;
}

}  // namespace

Experts::Experts(ParameterTable& table, const std::string& name, int64_t experts,
                 const MlpOptions& mlp)
    : place_(table.mesh()) {
  const int ranks = place_.ranks_along(place_.experts);
  for (int rank = 0; rank < ranks; ++rank) {
    MlpOptions its = mlp;
    if (exchanges()) its.owner = {place_.experts, rank};
    const Share own = even_share(experts, rank, ranks);
    for (int64_t expert = own.first; expert < own.first + own.count; ++expert) {
      experts_.emplace_back(table, cat(name, '.', expert), its);
    }
  }
}

Share Experts::experts_of(int rank) const {
  return even_share(std::ssize(experts_), rank, place_.ranks_along(place_.experts));
}

int Experts::rank_of(int64_t expert) const {
  // This is the inverse of even_share().
  const int64_t ranks = place_.ranks_along(place_.experts);
  return static_cast<int>((ranks * (expert + 1) - 1) / std::ssize(experts_));
}

// Lays rows out by expert, then in the order of tokens. Returns the number of rows per expert.
std::vector<int64_t> Experts::lay_out_rows(const ExpertChoices& choices, Saved& saved) const {
  std::vector<int64_t> counts(experts_.size());
  for (const int32_t expert : choices.experts) {
    if (expert >= 0) ++counts[static_cast<size_t>(expert)];
  }
  std::vector<int64_t> next(experts_.size());
  std::exclusive_scan(counts.begin(), counts.end(), next.begin(), int64_t{0});
  const auto rows = static_cast<size_t>(next.back() + counts.back());
  saved.tokens.resize(rows);
  saved.weights.resize(rows);
  saved.places.assign(choices.experts.size(), -1);
  for (size_t choice = 0; choice < choices.experts.size(); ++choice) {
    if (choices.experts[choice] < 0) continue;
    const int64_t row = next[static_cast<size_t>(choices.experts[choice])]++;
    const auto at = static_cast<size_t>(row);
    saved.tokens[at] = static_cast<int32_t>(choice / static_cast<size_t>(choices.each));
    saved.weights[at] = choices.weights[choice];
    saved.places[choice] = static_cast<int32_t>(row);
  }
  return counts;
}

void Experts::lay_out(Pass& pass, const ExpertChoices& choices, ConstTensor like, Saved& saved,
                      Mesh::ByHosts* inside) const {
  const std::vector<int64_t> counts = lay_out_rows(choices, saved);
  saved.jobs.clear();
  saved.order.clear();
  if (!exchanges()) {
    for (int64_t expert = 0, first = 0; expert < std::ssize(counts); ++expert) {
      const int64_t count = counts[static_cast<size_t>(expert)];
      const Share rows{std::exchange(first, first + count), count};
      const auto tokens = part_of(std::span<const int32_t>(saved.tokens), rows);
      if (count > 0) saved.jobs.push_back({static_cast<size_t>(expert), rows, tokens});
    }
    return;
  }
  std::vector<int> ranks(static_cast<size_t>(place_.ranks_along(place_.experts)));
  std::iota(ranks.begin(), ranks.end(), 0);
  RowPeers peers{.own = place_.number_along(place_.experts)};
  if (pass.mesh != nullptr) peers.ranks = &pass.mesh->group(place_.experts);
  if (inside != nullptr) {
    ranks = inside->numbers;
    peers.own = static_cast<int>(std::ranges::find(ranks, peers.own) - ranks.begin());
    peers.ranks = &inside->inside;
  }
  std::vector<int64_t> sent;  // number of rows by expert, over the experts of all ranks
  for (const int rank : ranks) {
    const auto its = part_of(std::span<const int64_t>(counts), experts_of(rank));
    peers.bins.push_back(std::ssize(its));
    sent.insert(sent.end(), its.begin(), its.end());
  }
  saved.exchange = RowExchange(peers, sent);
  put_into_order(pass, saved);
  saved.received = pass.arena.take(like.dtype, saved.exchange.received(), like.cols);
  saved.before = pass.arena.take(like.dtype, saved.received.rows, before_width());
}

// Determines the jobs. An expert processes all ranks' rows in one call. In deterministic mode it
// makes one call per micro-batch, as it would without expert parallelism.
void Experts::put_into_order(const Pass& pass, Saved& saved) const {
  const RowExchange& exchange = saved.exchange;
  const int of_a_batch = place_.ranks_along(place_.experts & AxisSet{Axis::tensor});
  const int at_once = pass.slices > 1 ? of_a_batch : exchange.ranks();
  const Share own = experts_of(place_.number_along(place_.experts));
  for (int first = 0; first < exchange.ranks(); first += at_once) {
    for (int64_t bin = 0; bin < own.count; ++bin) {
      const int64_t begin = std::ssize(saved.order);
      for (int rank = first; rank < first + at_once; ++rank) {
        const Share its = exchange.rows_from(rank, bin);
        for (int64_t i = 0; i < its.count; ++i) {
          saved.order.push_back(static_cast<int32_t>(its.first + i));
        }
      }
      const Share rows{begin, std::ssize(saved.order) - begin};
      if (rows.count == 0) continue;
      saved.jobs.push_back({static_cast<size_t>(own.first + bin), rows, {}});
      saved.jobs.back().mlp.set_source(first / at_once);
    }
  }
  if (std::ranges::is_sorted(saved.order)) return saved.order.clear();
  for (Job& job : saved.jobs)
    job.indices = part_of(std::span<const int32_t>(saved.order), job.rows);
}

Tensor Experts::rows_to_send(Pass& pass, const Saved& saved, ConstTensor tokens) const {
  const Tensor rows = pass.arena.take(tokens.dtype, saved.rows(), tokens.cols);
  embedding(tokens, {}, saved.tokens, rows);
  return rows;
}

Tensor Experts::in_received_order(Pass& pass, const Saved& saved, Tensor results) const {
  if (saved.order.empty()) return results;
  std::vector<int32_t> places(saved.order.size());
  for (size_t i = 0; i < places.size(); ++i) {
    places[static_cast<size_t>(saved.order[i])] = static_cast<int32_t>(i);
  }
  const Tensor rows = pass.arena.take(results.dtype, results.rows, results.cols);
  embedding(results, {}, places, rows);
  return rows;
}

RowExchange::Transfer Experts::send(Pass& pass, ConstTensor tokens, const Saved& saved) const {
  if (!exchanges()) return {};
  return saved.exchange.dispatch(pass, rows_to_send(pass, saved, tokens), saved.received);
}

void Experts::project(Pass& pass, ConstTensor tokens, Saved& saved, Tensor before) const {
  if (!exchanges()) saved.before = before;
  for (Job& job : saved.jobs) {
    experts_[job.expert].project(pass, rows_of(pass, exchanges() ? saved.received : tokens, job),
                                 job.mlp, saved.before.row_range(job.rows.first, job.rows.count));
  }
}

void Experts::activate(Pass& pass, Saved& saved) const {
  for (Job& job : saved.jobs) experts_[job.expert].activate(pass, job.mlp);
}

RowExchange::Transfer Experts::finish(Pass& pass, Saved& saved, Tensor rows) const {
  const Tensor results =
      exchanges() ? pass.arena.take(rows.dtype, saved.received.rows, rows.cols) : rows;
  for (Job& job : saved.jobs) {
    experts_[job.expert].finish(pass, job.mlp, results.row_range(job.rows.first, job.rows.count));
  }
  if (!exchanges()) return {};
  return saved.exchange.return_rows(pass, in_received_order(pass, saved, results), rows);
}

void Experts::backward_jobs(Pass& pass, ConstTensor inputs, ConstTensor gradients,
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

void Experts::backward(Pass& pass, ConstTensor tokens, ConstTensor gradients, Saved& saved,
                       const RowGradients& found, const std::function<void()>& meanwhile) const {
  if (!exchanges()) {
    meanwhile();
    return backward_jobs(pass, tokens, gradients, saved.weights, saved, found);
  }
  const RowExchange& exchange = saved.exchange;
  const int64_t rows = exchange.received();
  const Tensor received = pass.arena.take(gradients.dtype, rows, gradients.cols);
  std::vector<double> received_weights(static_cast<size_t>(rows));
  RowExchange::Transfer transfer =
      exchange.dispatch(pass, rows_to_send(pass, saved, gradients), received);
  RowExchange::Transfer weight_transfer =
      exchange.dispatch(pass, column_of(std::span<const double>(saved.weights)),
                        column_of(std::span(received_weights)));
  meanwhile();
  transfer.wait();
  weight_transfer.wait();

  const auto place = [&](size_t i) {
    return saved.order.empty() ? i : static_cast<size_t>(saved.order[i]);
  };
  std::vector<double> weights(received_weights.size()), dots(weights.size()), returned_dots = dots;
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = received_weights[place(i)];
  const Tensor results = pass.arena.take(found.rows.dtype, rows, found.rows.cols);
  pass.has_others_rows = true;
  backward_jobs(pass, saved.received, received, weights, saved, {results, dots});
  pass.has_others_rows = false;
  for (size_t i = 0; i < dots.size(); ++i) returned_dots[place(i)] = dots[i];
  transfer = exchange.return_rows(pass, in_received_order(pass, saved, results), found.rows);
  exchange
      .return_rows(pass, column_of(std::span<const double>(returned_dots)),
                   column_of(found.weights))
      .wait();
  transfer.wait();
}

}  // namespace tutti::training
