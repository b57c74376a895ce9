// The plans of one training run: made, checked and kept, by numbers of steps and micro-batches.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "training/pipeline/plan.h"
#include "training/pipeline/schedules.h"

namespace tutti::training::pipeline {

class Plans {
 public:
  // Throws Error(invalid_argument) where there is no such schedule for so many ranks.
  Plans(const std::string& schedule, int ranks, int virtual_stages);

  bool flushed() const { return kind_.updates == Updates::flushed; }
  int chunks() const { return layout_.schedule.chunks; }
  // Any of the plans: all agree on which chunks lie on which ranks.
  const Plan& layout() const { return layout_; }
  // Of at least so many micro-batches a step: where the schedule needs more, the last ones are of
  // weight 0. Several steps only for schedules that are not flushed, which do not flush in between.
  const Plan& training(int64_t micro_batches, int64_t steps = 1);
  const Plan& evaluation(int64_t micro_batches);

 private:
  Plan make(int64_t micro_batches, int64_t steps) const;

  const ScheduleKind& kind_;
  int ranks_;
  int virtual_stages_;
  Plan layout_;
  std::map<std::pair<int64_t, int64_t>, Plan> training_;
  std::map<int64_t, Plan> evaluation_;
};

}  // namespace tutti::training::pipeline
