#include "training/run/feed.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "training/core/placement.h"
#include "training/data/client_set.h"

namespace tutti::training {
namespace {

constexpr int kFewestStepsAhead = 2;

std::vector<SampledSet> sampled(const std::vector<const DataSet*>& sets,
                                const std::vector<double>& weights) {
  if (!weights.empty() && weights.size() != sets.size()) {
    throw Error(ErrorCode::invalid_argument,
                cat(sets.size(), " data sets were given, but ", weights.size(), " weights"),
                {.remedy = "give one weight per data set, or none"});
  }
  std::vector<SampledSet> result;
  for (size_t i = 0; i < sets.size(); ++i) {
    const uint64_t size = sets[i]->size();
    result.push_back({size, weights.empty() ? static_cast<double>(size) : weights[i]});
  }
  return result;
}

std::vector<std::unique_ptr<const DataSet>> client_sets(const std::vector<const DataSet*>& sets,
                                                        const FeedOptions& options) {
  std::vector<std::unique_ptr<const DataSet>> clients;
  if (options.labels_per_client == 0) return clients;
  for (const DataSet* set : sets) {
    clients.push_back(
        std::make_unique<ClientSet>(*set, ClientShare{.labels = options.labels_per_client,
                                                      .client = options.rank,
                                                      .clients = options.ranks}));
  }
  return clients;
}

std::vector<const DataSet*> views(const std::vector<std::unique_ptr<const DataSet>>& sets) {
  std::vector<const DataSet*> views(sets.size());
  std::ranges::transform(sets, views.begin(), [](const auto& set) { return set.get(); });
  return views;
}

// Returns the micro-batches of a step that `rank` computes; `count`: number of micro-batches of the
// step. If the rank has none, returns the step's last micro-batch with weight 0.
template <typename Fill>
std::vector<Batch> batches_of(int rank, uint64_t count, const FeedOptions& options,
                              const Fill& fill) {
  const Share own =
      rank < options.ranks ? even_share(static_cast<int64_t>(count), rank, options.ranks) : Share();
  std::vector<Batch> batches;
  for (int64_t index = own.first; index < own.first + own.count; ++index) {
    fill(static_cast<uint64_t>(index), batches.emplace_back());
  }
  if (own.count == 0 && count > 0) {
    fill(count - 1, batches.emplace_back());
    batches.back().weight = 0;
  }
  if (options.token_ranks == 1) return batches;
  for (Batch& batch : batches) {
    batch.deal_out(options.window, options.token_rank, options.token_ranks);
  }
  return batches;
}

uint64_t divide_up(uint64_t count, uint64_t parts) { return (count + parts - 1) / parts; }

}  // namespace

Feed::Feed(std::vector<const DataSet*> sets, const FeedOptions& options)
    : clients_(client_sets(sets, options)),
      sets_(clients_.empty() ? std::move(sets) : views(clients_)),
      options_(options),
      sampler_(sampled(sets_, options.weights), options.seed) {
  if (options.batch >= 1 && options.micro_batch >= 1) return;
  throw Error(ErrorCode::invalid_argument,
              cat("steps of ", options.batch, " samples in micro-batches of ", options.micro_batch,
                  " are impossible"),
              {.remedy = "use at least 1 of each"});
}

uint64_t Feed::steps() const { return divide_up(options_.samples, options_.batch); }

uint64_t Feed::passes() const {
  return divide_up(divide_up(std::min(options_.batch, options_.samples), options_.micro_batch),
                   static_cast<uint64_t>(options_.ranks));
}

std::vector<double> Feed::epochs(uint64_t steps) const {
  const uint64_t samples = std::min(steps * options_.batch, options_.samples);
  const uint64_t own = samples / options_.batch * range_of(options_.rank, options_.batch).count +
                       range_of(options_.rank, samples % options_.batch).count;
  const std::vector<uint64_t> taken = sampler_.taken(clients_.empty() ? samples : own);
  std::vector<double> epochs;
  for (size_t i = 0; i < sets_.size(); ++i) {
    epochs.push_back(static_cast<double>(taken[i]) / static_cast<double>(sets_[i]->size()));
  }
  return epochs;
}

std::unique_ptr<Loader<StepFeed>> Feed::steps_from(uint64_t from) const {
  return std::make_unique<Loader<StepFeed>>(
      [this](uint64_t step) { return part(step, options_.rank); }, from, steps(), options_.workers,
      std::max(options_.workers, kFewestStepsAhead));
}

Feed::Range Feed::range_of(int rank, uint64_t samples) const {
  const auto count = static_cast<int64_t>(divide_up(samples, options_.micro_batch));
  const Share own = even_share(count, rank, options_.ranks);
  const auto sample_at = [&](int64_t micro_batch) {
    return std::min(static_cast<uint64_t>(micro_batch) * options_.micro_batch, samples);
  };
  const uint64_t first = sample_at(own.first);
  return {first, sample_at(own.first + own.count) - first};
}

StepFeed Feed::part(uint64_t step, int rank) const {
  const uint64_t first = step * options_.batch;
  const uint64_t end = std::min(first + options_.batch, options_.samples);
  const uint64_t count = divide_up(end - first, options_.micro_batch);
  const auto ranks = static_cast<uint64_t>(options_.ranks);
  // A client numbers its own samples consecutively: first its `before` samples of earlier steps,
  // then the samples of its part of this step.
  const uint64_t before = step * range_of(rank, options_.batch).count;
  const uint64_t part = end - first - range_of(rank, end - first).first;
  const auto number_of = [&](uint64_t index) {
    return clients_.empty() ? index : before + (index - first + part) % (end - first);
  };
  const auto fill = [&](uint64_t micro_batch, Batch& batch) {
    batch.first_sample = first + micro_batch * options_.micro_batch;
    const uint64_t last = std::min(batch.first_sample + options_.micro_batch, end);
    for (uint64_t index = batch.first_sample; index < last; ++index) {
      const Sample sample = sampler_.sample(number_of(index));
      sets_[sample.data_set]->add(sample.example, sample.epoch, batch);
    }
  };
  return {.own = batches_of(rank, count, options_, fill),
          .passes = divide_up(count, ranks),
          .samples = end - first};
}

StepFeed Feed::validation(uint64_t max_samples) const {
  // Pairs (data set, example), from each data set in proportion to its size.
  std::vector<std::pair<size_t, uint64_t>> chosen;
  uint64_t all = 0;
  for (const DataSet* set : sets_) all += set->validation_size();
  const uint64_t wanted = std::min(all, max_samples);
  for (size_t set = 0; set < sets_.size(); ++set) {
    const uint64_t size = sets_[set]->validation_size();
    const uint64_t share = all == wanted ? size : std::max<uint64_t>(1, wanted * size / all);
    for (uint64_t i = 0; i < std::min(share, size); ++i) {
      chosen.emplace_back(set, i * size / std::min(share, size));
    }
  }
  const uint64_t count = divide_up(chosen.size(), options_.micro_batch);
  const auto ranks = static_cast<uint64_t>(options_.ranks);
  const auto fill = [&](uint64_t micro_batch, Batch& batch) {
    const uint64_t first = micro_batch * options_.micro_batch;
    const uint64_t end = std::min<uint64_t>(first + options_.micro_batch, chosen.size());
    for (uint64_t i = first; i < end; ++i) {
      sets_[chosen[i].first]->add_validation(chosen[i].second, batch);
    }
  };
  return {.own = batches_of(options_.rank, count, options_, fill),
          .passes = divide_up(count, ranks),
          .samples = chosen.size()};
}

}  // namespace tutti::training
