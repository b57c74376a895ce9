#include "training/data/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "training/core/random.h"
#include "training/data/permutation.h"

namespace tutti::training {
namespace {

constexpr uint32_t kLongestCycle = uint32_t{1} << 20;

void check_sampler(const std::vector<SampledSet>& sets) {
  if (sets.empty() || sets.size() > kLongestCycle) {
    throw Error(ErrorCode::invalid_argument, cat("cannot sample from ", sets.size(), " data sets"),
                {.remedy = cat("use at least one and at most ", kLongestCycle)});
  }
  for (size_t i = 0; i < sets.size(); ++i) {
    if (sets[i].size == 0) {
      throw Error(
          ErrorCode::invalid_argument, cat("data set ", i, " has no examples"),
          {.remedy =
               "remove this data set, or check that its file holds at least one whole example"});
    }
    if (!(sets[i].weight > 0) || !std::isfinite(sets[i].weight)) {
      throw Error(
          ErrorCode::invalid_argument, cat("the weight of data set ", i, " is ", sets[i].weight),
          {.remedy = "use positive weights, and remove data sets that should not be sampled"});
    }
  }
}

std::vector<double> shares_of(const std::vector<SampledSet>& sets) {
  // Divides by the largest weight, so that no sum overflows.
  const double largest = std::ranges::max(sets, {}, &SampledSet::weight).weight;
  std::vector<double> shares;
  shares.reserve(sets.size());
  for (const SampledSet& set : sets) shares.push_back(set.weight / largest);
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (double& share : shares) share /= sum;
  return shares;
}

// Returns the number of turns of each data set in the shortest cycle with the right proportions.
std::vector<uint32_t> count_turns(const std::vector<double>& shares) {
  // A number of turns counts as whole within this tolerance, which covers the rounding error of a
  // share (about 1e-16) times the length of the longest cycle.
  constexpr double kRounding = 1e-9;
  uint32_t length = 1;
  const auto is_whole = [&](double share) {
    const double turns = share * length;
    return turns > 0.5 && std::abs(turns - std::round(turns)) < kRounding;
  };
  while (length < kLongestCycle && !std::ranges::all_of(shares, is_whole)) ++length;
  std::vector<uint32_t> turns;
  turns.reserve(shares.size());
  for (const double share : shares) {
    turns.push_back(std::max(1u, static_cast<uint32_t>(std::lround(share * length))));
  }
  return turns;
}

// Schedules the turns of a cycle. Consider turn j of a data set with c of the cycle's L turns,
// counting from 0. It may be taken from step floor(j L / c) on, and must be taken before step
// ceil((j + 1) L / c): this is equivalent to being within 1 of its share at every step. A schedule
// that meets all deadlines exists (Tijdeman: The chairman assignment problem, Discrete Mathematics
// 32, 1980). Therefore taking the available turn with the earliest deadline also meets them
// (Steiner, Yeomans: Level schedules for mixed-model, just-in-time processes, Management Science
// 39, 1993).
struct Turns {
  uint64_t count;       // c: number of turns of the data set in the cycle
  uint64_t taken = 0;   // j: number of turns taken, and index of the next one
  uint64_t from = 0;    // first step of turn j
  uint64_t before = 0;  // first step that is too late

  void set_window(uint64_t length) {
    from = taken * length / count;
    before = ((taken + 1) * length + count - 1) / count;
  }
};

size_t earliest_deadline(const std::vector<Turns>& all, uint64_t step) {
  size_t best = all.size();
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].taken == all[i].count || all[i].from > step) continue;
    if (best == all.size() || all[i].before < all[best].before) best = i;
  }
  return best;
}

}  // namespace

Sampler::Sampler(std::vector<SampledSet> sets, uint64_t seed)
    : sets_(std::move(sets)), seed_(seed) {
  check_sampler(sets_);
  turns_of_ = count_turns(shares_of(sets_));
  const uint64_t length = std::accumulate(turns_of_.begin(), turns_of_.end(), uint64_t{0});
  std::vector<Turns> all;
  all.reserve(turns_of_.size());
  for (const uint32_t count : turns_of_) all.push_back({.count = count});
  for (Turns& turns : all) turns.set_window(length);
  cycle_.reserve(length);
  for (uint64_t step = 0; step < length; ++step) {
    const size_t next = earliest_deadline(all, step);
    cycle_.push_back({static_cast<uint32_t>(next), static_cast<uint32_t>(all[next].taken)});
    ++all[next].taken;
    all[next].set_window(length);
  }
}

Sample Sampler::sample(uint64_t index) const {
  const Turn turn = cycle_[index % cycle_.size()];
  const uint64_t taken = index / cycle_.size() * turns_of_[turn.data_set] + turn.before;
  const uint64_t size = sets_[turn.data_set].size;
  const uint64_t epoch = taken / size;
  const uint64_t key = random_bits(seed_, turn.data_set, epoch);
  return {turn.data_set, permute(key, taken % size, size), epoch};
}

std::vector<uint64_t> Sampler::taken(uint64_t samples) const {
  const uint64_t cycles = samples / cycle_.size();
  std::vector<uint64_t> taken;
  for (const uint32_t turns : turns_of_) taken.push_back((cycles + 1) * turns);
  // Finds the next turn of each data set in the rest of the cycle. That turn's member `before` is
  // the number of turns that the data set has taken in this cycle.
  size_t left = taken.size();
  std::vector<bool> seen(taken.size());
  for (uint64_t step = samples % cycle_.size(); step < cycle_.size() && left > 0; ++step) {
    const Turn& turn = cycle_[step];
    if (seen[turn.data_set]) continue;
    seen[turn.data_set] = true;
    taken[turn.data_set] -= turns_of_[turn.data_set] - turn.before;
    --left;
  }
  return taken;
}

}  // namespace tutti::training
