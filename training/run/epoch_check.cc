#include "training/run/epoch_check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <utility>

#include "base/error.h"
#include "training/run/feed.h"

namespace tutti::training {
namespace {

// A sample in a batch of the data set Numbered.
struct Taken {
  int32_t data_set = 0;
  int32_t example = 0;
  int32_t epoch = 0;

  bool operator==(const Taken&) const = default;
};

// A data set whose examples contain their own index, the epoch and the index of the data set.
class Numbered : public DataSet {
 public:
  Numbered(uint64_t size, int32_t number) : size_(size), number_(number) {}
  uint64_t size() const override { return size_; }
  uint64_t validation_size() const override { return 0; }
  void add(uint64_t example, uint64_t epoch, Batch& batch) const override {
    batch.document_starts.push_back(number_);
    batch.tokens.push_back(static_cast<int32_t>(example));
    batch.targets.push_back(static_cast<int32_t>(epoch));
    ++batch.samples;
  }
  void add_validation(uint64_t, Batch&) const override {}
  uint64_t fingerprint() const override { return size_; }

 private:
  uint64_t size_;
  int32_t number_;
};

using Sets = std::vector<std::unique_ptr<const DataSet>>;

Sets numbered_sets(const std::vector<uint64_t>& sizes) {
  Sets sets;
  for (const uint64_t size : sizes) {
    if (size < 1 || size > std::numeric_limits<int32_t>::max()) {
      throw Error(ErrorCode::invalid_argument, "a data set has no examples, or more than 2^31",
                  {.remedy = "use data sets of 1 to 2^31 examples"});
    }
    sets.push_back(std::make_unique<Numbered>(size, static_cast<int32_t>(sets.size())));
  }
  return sets;
}

// Returns the smallest number of samples in a run that reads each data set at least `o.epochs`
// times, if the data sets are mixed in proportion to their weights.
uint64_t samples_of(const EpochCheckOptions& o) {
  double weights = 0, most = 0;
  for (size_t i = 0; i < o.sizes.size(); ++i) {
    weights += o.weights.empty() ? static_cast<double>(o.sizes[i]) : o.weights[i];
  }
  for (size_t i = 0; i < o.sizes.size(); ++i) {
    const double size = static_cast<double>(o.sizes[i]);
    const double weight = o.weights.empty() ? size : o.weights[i];
    most = std::max(most, size * static_cast<double>(o.epochs) * weights / weight);
  }
  return static_cast<uint64_t>(std::ceil(most));
}

// Appends the samples of one step to `taken`, in order of their index in the run.
void append_step(const std::vector<StepFeed>& of_ranks, std::vector<Taken>& taken) {
  std::map<uint64_t, const Batch*> in_order;
  for (const StepFeed& feed : of_ranks) {
    for (const Batch& batch : feed.own) {
      if (batch.weight == 0) continue;
      if (!in_order.emplace(batch.first_sample, &batch).second) {
        throw Error(ErrorCode::internal, "two ranks take the same micro-batch");
      }
    }
  }
  for (const auto& [first, batch] : in_order) {
    for (size_t i = 0; i < batch->tokens.size(); ++i) {
      taken.push_back({batch->document_starts[i], batch->tokens[i], batch->targets[i]});
    }
  }
}

// Returns the samples that all ranks take from `step` on.
std::vector<Taken> taken_from(uint64_t step, int ranks, const Sets& sets,
                              const EpochCheckOptions& o, uint64_t samples) {
  std::vector<const DataSet*> views;
  for (const auto& set : sets) views.push_back(set.get());
  const Feed feed(views, {.batch = o.batch,
                          .micro_batch = o.micro_batch,
                          .samples = samples,
                          .seed = o.seed,
                          .ranks = ranks,
                          .weights = o.weights});
  std::vector<Taken> taken;
  for (; step < feed.steps(); ++step) {
    std::vector<StepFeed> of_ranks;
    for (int rank = 0; rank < ranks; ++rank) of_ranks.push_back(feed.part(step, rank));
    append_step(of_ranks, taken);
  }
  return taken;
}

// Counts the examples of one data set epoch by epoch.
class Counter {
 public:
  Counter(size_t data_set, uint64_t size) : data_set_(data_set), places_(size, kNone) { begin(0); }
  void add(const Taken& sample) {
    if (static_cast<uint64_t>(sample.epoch) != counts_.back().epoch) {
      end();
      before_ = std::exchange(places_, std::vector<int64_t>(places_.size(), kNone));
      begin(static_cast<uint64_t>(sample.epoch));
    }
    EpochCount& count = counts_.back();
    const auto example = static_cast<size_t>(sample.example);
    if (places_[example] != kNone) ++count.repeated;
    places_[example] = static_cast<int64_t>(count.taken++);
    if (!before_.empty() && before_[example] == places_[example]) ++count.same_place;
  }
  // Counts the missing examples of the last epoch only if the epoch has as many samples as the data
  // set has examples. Otherwise the run ended within the epoch.
  std::vector<EpochCount> counts() {
    if (counts_.back().taken == places_.size()) end();
    return counts_;
  }

 private:
  static constexpr int64_t kNone = -1;
  void begin(uint64_t epoch) { counts_.push_back({.data_set = data_set_, .epoch = epoch}); }
  void end() { counts_.back().missing = static_cast<uint64_t>(std::ranges::count(places_, kNone)); }

  size_t data_set_;
  std::vector<int64_t> places_;  // place of each example in this epoch
  std::vector<int64_t> before_;  // place of each example in the epoch before
  std::vector<EpochCount> counts_;
};

}  // namespace

bool EpochCheck::holds() const {
  return same_after_resume && std::ranges::all_of(epochs, [](const EpochCount& count) {
           // Two random orders have about one example at the same place by chance.
           const bool is_other = count.taken < 16 || count.same_place < count.taken / 2;
           return count.repeated == 0 && count.missing == 0 && is_other;
         });
}

EpochCheck check_epochs(const EpochCheckOptions& options) {
  const Sets sets = numbered_sets(options.sizes);
  const uint64_t samples = samples_of(options);
  const std::vector<Taken> all = taken_from(0, options.ranks, sets, options, samples);
  EpochCheck check{.steps = (samples + options.batch - 1) / options.batch,
                   .resumed_ranks = options.ranks + 1};
  check.resumed_at = check.steps / 2;
  const std::vector<Taken> resumed =
      taken_from(check.resumed_at, check.resumed_ranks, sets, options, samples);
  check.same_after_resume =
      std::ranges::equal(std::span(all).subspan(check.resumed_at * options.batch), resumed);
  for (size_t set = 0; set < options.sizes.size(); ++set) {
    Counter counter(set, options.sizes[set]);
    for (const Taken& sample : all) {
      if (static_cast<size_t>(sample.data_set) == set) counter.add(sample);
    }
    for (const EpochCount& count : counter.counts()) check.epochs.push_back(count);
  }
  return check;
}

}  // namespace tutti::training
