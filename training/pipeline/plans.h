// The plans of one training run: made, checked and kept, by number of micro-batches.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "training/pipeline/plan.h"
#include "training/pipeline/schedules.h"

namespace tutti::training::pipeline {

class Plans {
 public:
  // Throws Error(invalid_argument) where there is no such schedule for so many ranks.
  Plans(const std::string& schedule, int ranks, int virtual_stages);

  const ScheduleKind& kind() const { return kind_; }
  int chunks() const;
  // Of at least so many micro-batches: where the schedule needs more, the last ones are empty.
  const Plan& training(int64_t micro_batches);
  const Plan& evaluation(int64_t micro_batches);

 private:
  Schedule schedule(int64_t micro_batches) const;

  const ScheduleKind& kind_;
  int ranks_;
  int virtual_stages_;
  std::map<int64_t, Plan> training_;
  std::map<int64_t, Plan> evaluation_;
};

}  // namespace tutti::training::pipeline
