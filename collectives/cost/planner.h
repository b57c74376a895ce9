// Chooses the algorithm of a call: the one with the shortest time in the cost walk, among the
// algorithms that support these ranks and whose results have at least the requested Grade. If the
// communicator is too large to be walked, a rough estimate takes the place of the walk.
//
// The choice depends only on values that are the same on all ranks (the call, the shape, the
// limits, and rank 0's cost model), so all ranks make the same choice without communication. It is
// computed once per size class (two classes per doubling), and once for all roots that the same
// algorithms support. Later calls look it up.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"
#include "collectives/cost/cost.h"
#include "collectives/program/algorithm.h"

namespace tutti {

// The call to choose for. `bytes` is the size of one block, or of the buffer if the collective has
// no blocks.
struct CallToPlan {
  Collective collective = Collective::barrier;
  int root = 0;  // for rooted collectives
  uint64_t bytes = 0;
  DType dtype = DType::f32;
  Grade at_least = Grade::same_bits;
  bool direct = false;  // value of Algorithm::direct that the algorithm must have
  uint64_t width = 1;   // elements that the operator combines at once
};

struct Candidate {
  const Algorithm* algorithm = nullptr;
  std::string excluded;   // why the algorithm is excluded; empty for a candidate
  Prediction prediction;  // valid for a candidate
};

// Returns the smallest size of the size class that contains `bytes`; the choice is made for that
// size.
uint64_t typical_size(uint64_t bytes);
// Returns the built-in algorithms of the collective and the algorithms in `more`.
std::vector<const Algorithm*> algorithms_to_choose_from(Collective collective,
                                                        std::span<const Algorithm* const> more);
// Returns the reason why the algorithm is excluded; empty for a candidate.
std::string why_not(const Algorithm& algorithm, const Shape& shape, const CallToPlan& wanted);
Error no_algorithm(const Shape& shape, const CallToPlan& wanted);

// Chooses for one communicator and caches its choices. Not thread-safe.
class Planner {
 public:
  // Plans for the ranks of `shape`, whose `rank` and `root` are not used. The candidates are the
  // built-in algorithms and `more`, which must be the same on all ranks.
  Planner(const Shape& shape, const Machine& machine, std::vector<const Algorithm*> more = {})
      : shape_(shape), machine_(machine), more_(std::move(more)) {}

  // Returns the cheapest algorithm. Throws Error(unsupported) if no algorithm supports the call.
  const Algorithm& choose(const CallToPlan& wanted);
  // Returns all algorithms of the collective, the cheapest first and the excluded ones last.
  std::vector<Candidate> explain(const CallToPlan& wanted);

  const Machine& machine() const { return machine_; }

 private:
  const Algorithm& choose_again(const CallToPlan& wanted);
  // Returns true if the number of ranks is small enough to generate and walk the programs of all
  // ranks.
  bool are_walked() const;
  // Returns a rough time in seconds. Candidates are tried in the order of this time, and it is the
  // prediction for programs that are too long to walk.
  double rough_seconds(const Algorithm& algorithm, const CallToPlan& wanted);
  // Returns the lowest root that is supported by the same algorithms as `root`. Its plan is used
  // for `root`, so that in large communicators the programs need not be walked for each root.
  int typical_root(Collective collective, int root);
  bool is_too_wide(const Plan& plan, const CallToPlan& wanted) const;
  // Predicts the time as predict() does, but also for programs too long to walk.
  Prediction price(const Algorithm& algorithm, const CallToPlan& wanted,
                   double give_up = std::numeric_limits<double>::infinity());
  void drop_long_plans();
  const std::vector<Plan>& plans_of(const Algorithm& algorithm, int root, bool all_ranks);

  Shape shape_;
  Machine machine_;
  std::vector<const Algorithm*> more_;
  std::map<std::pair<uint64_t, uint64_t>, const Algorithm*> chosen_;  // by key_of() and width
  std::map<std::pair<Collective, int>, int> typical_roots_;
  // Indexed by algorithm and root: rank 0's plan, or all ranks' plans. choose() drops long plans.
  std::map<std::pair<uint64_t, int>, std::vector<Plan>> plans_;
};

}  // namespace tutti
