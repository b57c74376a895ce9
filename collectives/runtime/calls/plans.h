// The algorithms and plans of a communicator's calls. They depend only on the kind of communicator
// (Plans::Kind), so communicators of one kind in a process share them. A new communicator then
// neither predicts times nor checks plans again.
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

// Returns the key for choosing the algorithm of a complete() call among `ranks` ranks.
CallToPlan wanted_of(const Request& request, int ranks, Grade at_least);

// Plans of one kind of communicator. Thread-safe.
class Plans {
 public:
  // Properties common to communicators that share plans.
  struct Kind {
    Shape shape;  // shape with this rank and any root
    Hosts hosts;
    Limits limits;
    bool any_shm = false;            // true: members of one host share memory
    PathClass far = PathClass::tcp;  // class of paths between members without shared memory
    bool lends = false;              // true: some of this rank's messages are read in place
    bool operator==(const Kind&) const = default;
  };

  // Creates empty plans. `model` and `more` (additional algorithms) must be the same on all ranks.
  Plans(const Kind& kind, const CostModel& model, std::vector<const Algorithm*> more);

  const Kind& kind() const { return kind_; }
  Shape shape(int root) const;
  // Returns the algorithm for the call. Throws Error(unsupported) if none supports it.
  const Algorithm& choose(const CallToPlan& wanted);
  // Returns this rank's plan of an algorithm that supports the shape. The plan lives as long as
  // this object.
  const Plan& plan(const Algorithm& algorithm, int root, bool in_place, Arithmetic arithmetic);

 private:
  struct Choosing;
  static std::shared_ptr<Choosing> choosing_for(const Kind& kind, const CostModel& model,
                                                std::vector<const Algorithm*> more);
  bool needs_no_buffers(const Algorithm& algorithm, const Plan& mine, bool in_place,
                        Arithmetic arithmetic) const;

  const Kind kind_;
  const std::shared_ptr<Choosing> choosing_;
  std::mutex mutex_;  // guards everything below
  // Plans by algorithm, root, in-place flag and arithmetic.
  std::map<std::tuple<uint64_t, int, bool, Arithmetic>, std::unique_ptr<Plan>> plans_;
};

// Caches the plans of recently used kinds of communicators.
class PlanCache {
 public:
  PlanCache(const CostModel& model, std::vector<const Algorithm*> more);
  std::shared_ptr<Plans> plans_for(const Plans::Kind& kind);

 private:
  const CostModel model_;
  const std::vector<const Algorithm*> more_;
  std::mutex mutex_;
  std::vector<std::shared_ptr<Plans>> kept_;  // least recently requested first
};

}  // namespace tutti
