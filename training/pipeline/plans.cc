#include "training/pipeline/plans.h"

#include <algorithm>

#include "training/pipeline/check.h"

namespace tutti::training::pipeline {

Plans::Plans(const std::string& schedule, int ranks, int virtual_stages)
    : kind_(schedule_named(schedule)), ranks_(ranks), virtual_stages_(virtual_stages) {
  training(1);
}

int Plans::chunks() const { return training_.begin()->second.schedule.chunks; }

Schedule Plans::schedule(int64_t micro_batches) const {
  Shape shape{.ranks = ranks_,
              .micro_batches = static_cast<int>(std::max<int64_t>(1, micro_batches)),
              .virtual_stages = virtual_stages_};
  shape.micro_batches = kind_.round_up(shape);
  return make_schedule(kind_, shape);
}

const Plan& Plans::training(int64_t micro_batches) {
  const auto [at, added] = training_.try_emplace(micro_batches);
  if (added) {
    at->second = make_plan(schedule(micro_batches));
    check(at->second);
  }
  return at->second;
}

const Plan& Plans::evaluation(int64_t micro_batches) {
  const auto [at, added] = evaluation_.try_emplace(micro_batches);
  if (added) {
    at->second = make_plan(forward_only(schedule(micro_batches)));
    check(at->second);
  }
  return at->second;
}

}  // namespace tutti::training::pipeline
