// A cache of a training run's plans, keyed by the numbers of micro-batches and steps. Plans are
// computed and checked when they are first needed.
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
  // Creates the cache. Throws Error(invalid_argument) if there is no such schedule for this number
  // of ranks.
  Plans(const std::string& schedule, int ranks, int virtual_stages);

  bool flushed() const { return kind_.updates == Updates::flushed; }
  int chunks() const { return layout_.schedule.chunks; }
  // Returns one of the plans. All plans have the same chunks on the same ranks.
  const Plan& layout() const { return layout_; }
  // Returns a plan of `steps` steps, with at least `micro_batches` micro-batches in each. If the
  // plan has more, the caller must pass micro-batches of weight 0 for the rest. There is no flush
  // between the steps, so `steps` > 1 requires a schedule without flushes.
  const Plan& training(int64_t micro_batches, int64_t steps = 1);
  // Returns a plan with forward entries only, for at least `micro_batches` micro-batches.
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
