// Chooses the algorithm of a call: the one that the cost walk finds cheapest, among those that run
// on these ranks and give the bits that are wanted.
//
// The choice depends on what all ranks know alike (the call, the shape, the limits, and a cost
// model that rank 0 told them), so all choose alike without talking. It is made once per size
// class, of which there are four to a doubling; after that it is a look-up.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/dtype.h"
#include "collectives/algorithm.h"
#include "collectives/cost.h"

namespace tutti {

// What has to be chosen for. `bytes`: of one block (of the buffer, where there are no blocks).
struct Wanted {
  Collective collective = Collective::barrier;
  uint64_t bytes = 0;
  DType dtype = DType::f32;
  Grade at_least = Grade::same_bits;
  bool direct = false;  // Algorithm::direct
};

struct Candidate {
  const Algorithm* algorithm = nullptr;
  std::string excluded;   // why it is none; empty: it is
  Prediction prediction;  // unless it is excluded
};

// Not for several threads at a time.
class Planner {
 public:
  // shape.rank and shape.root do not matter.
  Planner(const Shape& shape, const Machine& machine) : shape_(shape), machine_(machine) {}

  // Throws Error(unsupported) if there is none.
  const Algorithm& choose(const Wanted& wanted);
  // All algorithms of the collective, the cheapest first, those that are excluded last.
  std::vector<Candidate> explain(const Wanted& wanted);

  const Machine& machine() const { return machine_; }

 private:
  const Algorithm& choose_anew(const Wanted& wanted);
  std::string why_not(const Algorithm& algorithm, const Wanted& wanted) const;
  // As predict(), but for programs too long to walk.
  Prediction price(const Algorithm& algorithm, const Wanted& wanted,
                   double give_up = std::numeric_limits<double>::infinity());
  const std::vector<Plan>& plans_of(const Algorithm& algorithm, bool all_ranks);

  Shape shape_;
  Machine machine_;
  std::unordered_map<uint64_t, const Algorithm*> chosen_;
  std::map<uint16_t, std::vector<Plan>> plans_;  // by algorithm: rank 0's, or all ranks'
};

}  // namespace tutti
