// Which algorithms the calls of a communicator run, and their plans. They follow from the shape of
// the communicator alone, so communicators of one process that are alike share them: the first call
// of a new one need not price or prove again what another has.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "collectives/cost/cost_model.h"
#include "collectives/cost/planner.h"
#include "collectives/program/algorithm.h"
#include "collectives/program/arithmetic.h"
#include "collectives/program/plan.h"
#include "collectives/request.h"
#include "topology/domain.h"
#include "transport/limits.h"

namespace tutti {

// What an algorithm is chosen for: a call that is complete(), among `ranks`.
Wanted wanted_of(const Request& request, int ranks, Grade at_least);

// Threads: any.
class Plans {
 public:
  // What communicators that share plans have in common.
  struct Kind {
    Shape shape;  // of this rank; any root
    Hosts hosts;
    Limits limits;
    bool any_shm = false;            // members of one host share memory
    PathClass far = PathClass::tcp;  // all others
    bool lends = false;              // some of this rank's messages are not copied aside
    bool operator==(const Kind&) const = default;
  };

  // `model` and `more` algorithms: alike on all ranks.
  Plans(const Kind& kind, const CostModel& model, std::vector<const Algorithm*> more);

  const Kind& kind() const { return kind_; }
  Shape shape(int root) const;
  // Throws Error(unsupported) if there is none.
  const Algorithm& choose(const Wanted& wanted);
  // This rank's part of an algorithm that supports the shape. Lives as long as this.
  const Plan& plan(const Algorithm& algorithm, int root, bool in_place, Arithmetic arithmetic);

 private:
  bool needs_no_buffers(const Algorithm& algorithm, const Plan& mine, bool in_place,
                        Arithmetic arithmetic) const;

  const Kind kind_;
  std::mutex mutex_;  // guards everything below
  Planner planner_;
  // By algorithm, root, whether the call is in place, and arithmetic.
  std::map<std::tuple<uint64_t, int, bool, Arithmetic>, std::unique_ptr<Plan>> plans_;
};

// Those of the last kinds of communicators that were made.
class PlanCache {
 public:
  PlanCache(const CostModel& model, std::vector<const Algorithm*> more);
  std::shared_ptr<Plans> plans_for(const Plans::Kind& kind);

 private:
  const CostModel model_;
  const std::vector<const Algorithm*> more_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<Plans>> kept_;  // the one asked for last is the last
};

}  // namespace tutti
