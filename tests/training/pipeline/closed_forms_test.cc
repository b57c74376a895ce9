// Tests the idle times that papers state for their schedules against the simulator. They are exact
// for the shapes to which they apply, and are not reported for other shapes.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "training/pipeline/closed_form.h"
#include "training/pipeline/schedules.h"
#include "training/pipeline/simulate.h"

namespace tutti::training::pipeline {
namespace {

constexpr int kMaxRanks = 16;
constexpr int kMaxMicroBatches = 32;
constexpr int kMaxVirtualStages = 4;

constexpr double kRounding = 1e-12;

Timeline timed(std::string_view name, const Shape& shape, const Costs& costs) {
  return simulate(make_plan(make_schedule(schedule_named(name), shape)), costs);
}

std::string told(const Shape& shape) {
  return "p=" + std::to_string(shape.ranks) + " m=" + std::to_string(shape.micro_batches) +
         " v=" + std::to_string(shape.virtual_stages);
}

template <typename Visit>
void for_each_shape(Visit visit) {
  for (int p = 1; p <= kMaxRanks; ++p) {
    for (int m = 1; m <= kMaxMicroBatches; ++m) visit(p, m);
  }
}

Costs all_of(double forward, double backward_input, double backward_weight) {
  return {.forward = {forward},
          .backward_input = {backward_input},
          .backward_weight = {backward_weight}};
}

// The formulas hold for any durations of forward and backward.
TEST(ClosedForms, GPipeAndOneFOneB) {
  for_each_shape([](int p, int m) {
    for (const Costs& costs : {all_of(1, 1, 1), all_of(2, 1, 1), all_of(5, 1, 2)}) {
      const double bubble = (p - 1.) / (m + p - 1.);
      const Shape shape{p, m};
      EXPECT_NEAR(timed("gpipe", shape, costs).bubble, bubble, kRounding) << told(shape);
      EXPECT_NEAR(timed("1f1b", shape, costs).bubble, bubble, kRounding) << told(shape);
    }
  });
}

TEST(ClosedForms, Interleaved) {
  for_each_shape([](int p, int m) {
    for (int v = 1; v <= kMaxVirtualStages; ++v) {
      if (m % p != 0 && v > 1) continue;
      for (const Costs& costs : {all_of(1, 1, 1), all_of(2, 1, 1)}) {
        const Shape shape{p, m, v};
        EXPECT_NEAR(timed("interleaved", shape, costs).bubble, (p - 1.) / (v * m + p - 1.),
                    kRounding)
            << told(shape);
      }
    }
  });
}

// A last group that is not full of micro-batches costs no more than a full group.
TEST(ClosedForms, AnIncompleteInterleavedGroupCostsNoMoreThanAFullOne) {
  for_each_shape([](int p, int m) {
    for (int v = 2; v <= kMaxVirtualStages; ++v) {
      const double in_part = timed("interleaved", {p, m, v}, {}).makespan;
      const double full = timed("interleaved", {p, (m + p - 1) / p * p, v}, {}).makespan;
      EXPECT_LE(in_part, full) << told({p, m, v});
    }
  });
}

// A rank is idle for (p - 1) t in a step of ZB-H1, and for 3 (p - 1) t in a step of 1F1B.
TEST(ClosedForms, ZeroBubbleH1IsIdleForAThirdOf1F1B) {
  for_each_shape([](int p, int m) {
    if (m < p) return;
    const Costs costs = all_of(1, 1, 1);
    const Shape shape{p, m};
    const double work = 3. * m;
    EXPECT_EQ(timed("zb-h1", shape, costs).makespan - work, p - 1) << told(shape);
    EXPECT_EQ(timed("1f1b", shape, costs).makespan - work, 3 * (p - 1)) << told(shape);
  });
}

TEST(ClosedForms, ZeroBubbleH2IsNeverIdleWithoutABarrier) {
  for_each_shape([](int p, int m) {
    if (m < 2 * p - 1) return;
    const Timeline timeline = timed("zb-h2", {p, m}, all_of(1, 1, 1));
    EXPECT_EQ(timeline.period, 3 * m) << told({p, m});
    EXPECT_NEAR(timeline.steady_bubble, 0, kRounding) << told({p, m});
    // With a barrier, rank r waits for r before its first entry, and for p - 1 - r after its last
    // entry.
    EXPECT_EQ(timeline.makespan, 3 * m + p - 1) << told({p, m});
  });
}

TEST(ClosedForms, Chimera) {
  for_each_shape([](int p, int m) {
    if (p % 2 != 0 || m % p != 0) return;
    EXPECT_NEAR(timed("chimera", {p, m}, all_of(2, 1, 1)).bubble, (p - 2.) / (2 * m + p - 2.),
                kRounding)
        << told({p, m});
  });
}

// The formula that is printed beside the simulated time is offered exactly for those shapes for
// which both agree.
TEST(ClosedForms, ApplyExactlyWhereTheyAreRight) {
  for (const ScheduleKind& kind : all_schedules()) {
    const Costs costs = kind.name == "chimera" ? all_of(2, 1, 1) : all_of(1, 1, 1);
    for_each_shape([&](int p, int m) {
      for (int v = 1; v <= (kind.has_virtual_stages ? kMaxVirtualStages : 1); ++v) {
        const Shape shape{p, m, v};
        if (!kind.why_not(shape).empty()) continue;
        const auto form = closed_form(kind, shape, costs);
        EXPECT_EQ(form.has_value(), kind.updates == Updates::flushed) << kind.name;
        if (!form) continue;
        const Timeline timeline = timed(kind.name, shape, costs);
        const double bubble = form->back_to_back ? timeline.steady_bubble : timeline.bubble;
        EXPECT_EQ(form->applies, std::abs(bubble - form->bubble) <= kRounding)
            << kind.name << ' ' << told(shape);
      }
    });
  }
}

// If each rank has a processor, the makespan equals that of simulate(). If all ranks share one
// processor, it is the sum of all computation, because some rank can always continue. With a number
// of processors in between, it is at least the longest computation of a rank and at most this sum.
TEST(Processors, SharedOnesBoundTheMakespan) {
  for (const std::string_view name : {"gpipe", "1f1b", "zb-h1"}) {
    for (int p = 1; p <= 6; ++p) {
      for (int m = 1; m <= 9; m += 2) {
        SCOPED_TRACE(std::string(name) + ' ' + told({p, m}));
        const Plan plan = make_plan(make_schedule(schedule_named(name), {p, m}));
        const Costs costs = all_of(1, 2, 1);
        const double alone = simulate(plan, costs).makespan;
        const double work = 4.0 * p * m;
        EXPECT_NEAR(makespan(plan, costs, p), alone, kRounding * alone);
        EXPECT_NEAR(makespan(plan, costs, 1), work, kRounding * work);
        for (int shared = 2; shared < p; ++shared) {
          const double time = makespan(plan, costs, shared);
          EXPECT_GE(time, work / shared - kRounding * work);
          EXPECT_GE(time, alone - kRounding * alone);
          EXPECT_LE(time, work + kRounding * work);
          if (m > 1) {
            EXPECT_LT(time, work);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace tutti::training::pipeline
