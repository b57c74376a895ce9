// Caches collective schedules for groups of ranks. Groups with equivalent locations share one
// schedule.
#pragma once

#include <cstddef>
#include <vector>

#include "collectives/simulate/schedule.h"
#include "topology/domain.h"
#include "topology/layout.h"

namespace tutti::training {

class GroupSchedules {
 public:
  // Returns the index of the algorithm's schedule for ranks at `places`. Throws as make_schedule()
  // does.
  size_t find(const Algorithm& algorithm, const std::vector<Place>& places,
              const ScheduleOptions& options);
  const Schedule& operator[](size_t number) const { return cached_[number].schedule; }
  void clear() { cached_.clear(); }

 private:
  struct CachedSchedule {
    const Algorithm* algorithm;
    int32_t ranks;
    Layout layout;
    int32_t alike;
    Schedule schedule;
  };
  std::vector<CachedSchedule> cached_;
};

}  // namespace tutti::training
