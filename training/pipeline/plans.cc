#include "training/pipeline/plans.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "training/pipeline/check.h"

namespace tutti::training::pipeline {
namespace {

Plan checked(const Schedule& schedule) {
  Plan plan = make_plan(schedule);
  check(plan);
  return plan;
}

}  // namespace

Plans::Plans(const std::string& schedule, int ranks, int virtual_stages)
    : kind_(schedule_named(schedule)),
      ranks_(ranks),
      virtual_stages_(virtual_stages),
      layout_(make(ranks, 1)) {}

Plan Plans::make(int64_t micro_batches, int64_t steps) const {
  // All entries of a table are in memory, so a step with more micro-batches is probably a mistake.
  constexpr int64_t kMostForwards = 10'000'000;
  if (micro_batches > kMostForwards / steps / ranks_ / virtual_stages_) {
    throw Error(ErrorCode::invalid_argument,
                cat(steps, steps == 1 ? " step" : " steps", " of ", micro_batches,
                    " micro-batches each are too many for one pipeline schedule"),
                {.remedy = "use larger micro-batches, smaller steps or more data-parallel ranks"});
  }
  Shape shape{.ranks = ranks_,
              .micro_batches = static_cast<int>(std::max<int64_t>(1, micro_batches) * steps),
              .virtual_stages = virtual_stages_};
  if (!flushed()) {
    // A single step, which may have few micro-batches (those at the end of a run), uses the initial
    // weights only. For PipeDream-2BW the number is rounded up to its minimum; the caller passes
    // micro-batches of weight 0 for the rest.
    const bool needs_more = steps == 1 && kind_.updates == Updates::delayed;
    const int64_t least = needs_more ? ranks_ - 1 : 1;
    shape.accumulated = static_cast<int>(std::max({int64_t{1}, least, micro_batches}));
  }
  shape.micro_batches = kind_.round_up(shape);
  return checked(make_schedule(kind_, shape));
}

const Plan& Plans::training(int64_t micro_batches, int64_t steps) {
  const auto at = std::pair(micro_batches, steps);
  if (!training_.contains(at)) training_.emplace(at, make(micro_batches, steps));
  return training_.at(at);
}

const Plan& Plans::evaluation(int64_t micro_batches) {
  if (!evaluation_.contains(micro_batches)) {
    // Without backward, schedules without flushes are the same as 1F1B.
    const Schedule schedule =
        flushed() ? make(micro_batches, 1).schedule
                  : one_f_one_b(ranks_, static_cast<int>(std::max<int64_t>(1, micro_batches)));
    evaluation_.emplace(micro_batches, checked(forward_only(schedule)));
  }
  return evaluation_.at(micro_batches);
}

}  // namespace tutti::training::pipeline
