#include "training/parallel/bucket_progress.h"

#include <algorithm>
#include <utility>

namespace tutti::training {

BucketProgress::BucketProgress(const Layout& layout, std::vector<std::vector<int>> used_by,
                               std::vector<int> joined, bool by_micro_batch)
    : layout_(layout),
      used_by_(std::move(used_by)),
      joined_(std::move(joined)),
      by_micro_batch_(by_micro_batch),
      buckets_(layout.buckets.size()),
      expected_(layout.slots.size()),
      reached_(layout.slots.size()) {
  for (const int parameter : joined_) {
    const int bucket = layout_.slots[static_cast<size_t>(parameter)].bucket;
    buckets_[static_cast<size_t>(bucket)].joined = true;
  }
}

void BucketProgress::begin_step(std::span<const int64_t> passes) {
  first_unreported_ = 0;
  ready_.clear();
  std::ranges::fill(reached_, 0);
  std::ranges::fill(expected_, 0);
  for (size_t unit = 0; unit < passes.size(); ++unit) {
    for (const int parameter : used_by_[unit]) {
      expected_[static_cast<size_t>(parameter)] += passes[unit];
    }
  }
  for (const int parameter : joined_) ++expected_[static_cast<size_t>(parameter)];
  const int64_t most = passes.empty() ? 0 : std::ranges::max(passes);
  for (size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    State& at = buckets_[bucket];
    int64_t all = 0;
    for (const int parameter : layout_.buckets[bucket].parameters) {
      all += expected_[static_cast<size_t>(parameter)];
    }
    at.rounds = by_micro_batch_ && !at.joined && most > 0 ? most : 1;
    at.in_round = at.contributions = all / at.rounds;
  }
}

bool BucketProgress::contribute(int parameter) {
  const auto number = static_cast<size_t>(parameter);
  const bool last = ++reached_[number] == expected_[number];
  const int bucket = layout_.slots[number].bucket;
  State& at = buckets_[static_cast<size_t>(bucket)];
  if (--at.contributions != 0) return last;
  if (--at.rounds > 0) at.contributions = at.in_round;
  if (by_micro_batch_) {
    ready_.push_back(bucket);
  } else {
    report_in_order();
  }
  return last;
}

void BucketProgress::report_in_order() {
  const auto is_done = [this](int bucket) {
    return bucket < std::ssize(buckets_) && buckets_[static_cast<size_t>(bucket)].rounds == 0;
  };
  while (is_done(first_unreported_)) ready_.push_back(first_unreported_++);
}

std::optional<int> BucketProgress::next() {
  if (ready_.empty()) return std::nullopt;
  const int bucket = ready_.front();
  ready_.pop_front();
  return bucket;
}

bool BucketProgress::complete() const {
  return std::ranges::all_of(buckets_, [](const State& at) { return at.rounds == 0; });
}

std::vector<int> BucketProgress::missing() const {
  std::vector<int> parameters;
  for (size_t parameter = 0; parameter < reached_.size(); ++parameter) {
    if (reached_[parameter] != expected_[parameter]) {
      parameters.push_back(static_cast<int>(parameter));
    }
  }
  return parameters;
}

void BucketProgress::give_up_waiting() {
  for (State& at : buckets_) at.rounds = 0;
  report_in_order();
}

}  // namespace tutti::training
