#include "training/pipeline/weight_versions.h"

#include <algorithm>

namespace tutti::training::pipeline {

namespace {

using Copies = std::map<int, Tensor>;

void free_copy(BufferPool& pool, Copies& copies, Copies::iterator copy) {
  pool.release(copy->second.data, copy->second.bytes());
  copies.erase(copy);
}

}  // namespace

void WeightVersions::begin(const RankPlan& plan) {
  newest_ = 0;
  if (!copies_.empty()) end();  // the run before failed, and its parameters may be in a copy
  while (!copies_.empty()) free_copy(storage_.pool(), copies_, copies_.begin());
  uses_left_.assign(1, 0);
  for (const Action& action : plan.actions) {
    const auto version = static_cast<size_t>(action.version);
    if (uses_left_.size() <= version) uses_left_.resize(version + 1);
    if (action.kind == Action::Kind::compute) ++uses_left_[version];
  }
}

void WeightVersions::use(int version) {
  storage_.show_values_in(version == newest_ ? storage_.all_values() : copies_.at(version));
}

void WeightVersions::done(int version) {
  if (--uses_left_[static_cast<size_t>(version)] > 0 || version == newest_) return;
  free_copy(storage_.pool(), copies_, copies_.find(version));
}

void WeightVersions::before_update() {
  if (uses_left_[static_cast<size_t>(newest_)] > 0) {
    const Tensor newest = storage_.all_values();
    Tensor& kept = copies_[newest_] = newest;
    kept.data = storage_.pool().acquire(newest.bytes());
    copy(newest, kept);
  }
  ++newest_;
  most_versions_ = std::max(most_versions_, static_cast<int>(copies_.size()) + 1);
}

}  // namespace tutti::training::pipeline
