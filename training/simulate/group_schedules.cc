#include "training/simulate/group_schedules.h"

#include <algorithm>

namespace tutti::training {

size_t GroupSchedules::find(const Algorithm& algorithm, const std::vector<Place>& places,
                            const ScheduleOptions& options) {
  const Shape shape{.ranks = static_cast<int32_t>(places.size()), .layout = Layout::of(places)};
  const auto known = std::ranges::find_if(cached_, [&](const CachedSchedule& made) {
    return made.algorithm == &algorithm && made.ranks == shape.ranks &&
           made.layout == shape.layout && made.alike == options.alike;
  });
  if (known != cached_.end()) return static_cast<size_t>(known - cached_.begin());
  cached_.push_back({&algorithm, shape.ranks, shape.layout, options.alike,
                     make_schedule(algorithm, shape, options)});
  return cached_.size() - 1;
}

}  // namespace tutti::training
