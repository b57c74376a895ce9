// Chooses the algorithm of a call: the one that the cost walk finds cheapest, among those that run
// on these ranks and give the bits that are wanted.
//
// The choice depends on what all ranks know alike (the call, the shape, the limits, and a cost
// model that rank 0 told them), so all choose alike without talking. It is made once per size
// class, of which there are two to a doubling, and for all roots that the same algorithms support;
// after that it is a look-up.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/error.h"
#include "collectives/cost/cost.h"
#include "collectives/program/algorithm.h"

namespace tutti {

// What has to be chosen for. `bytes`: of one block (of the buffer, where there are no blocks).
struct Wanted {
  Collective collective = Collective::barrier;
  int root = 0;  // of a collective that has one
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

// The smallest size of its class, for which the choice is made.
uint64_t typical_size(uint64_t bytes);
// The built-in ones and those of `more`.
std::vector<const Algorithm*> algorithms_to_choose_from(Collective collective,
                                                        std::span<const Algorithm* const> more);
// Why it is no candidate; empty: it is.
std::string why_not(const Algorithm& algorithm, const Shape& shape, const Wanted& wanted);
Error no_algorithm(const Shape& shape, const Wanted& wanted);

// Not for several threads at a time.
class Planner {
 public:
  // shape.rank and shape.root do not matter. Chooses among the built-in algorithms and `more`,
  // which all ranks must have given alike.
  Planner(const Shape& shape, const Machine& machine, std::vector<const Algorithm*> more = {})
      : shape_(shape), machine_(machine), more_(std::move(more)) {}

  // Throws Error(unsupported) if there is none.
  const Algorithm& choose(const Wanted& wanted);
  // All algorithms of the collective, the cheapest first, those that are excluded last.
  std::vector<Candidate> explain(const Wanted& wanted);

  const Machine& machine() const { return machine_; }

 private:
  const Algorithm& choose_anew(const Wanted& wanted);
  // Whether programs of all ranks are made, to walk them.
  bool are_walked() const;
  // What only orders candidates, or prices those that are too long to be walked.
  double rough_seconds(const Algorithm& algorithm, const Wanted& wanted);
  // The first root that the same algorithms support: it stands for `root`, so that communicators of
  // many ranks do not walk every program for each of them.
  int typical_root(Collective collective, int root);
  bool is_too_wide(const Plan& plan, DType dtype) const;
  // As predict(), but for programs too long to walk.
  Prediction price(const Algorithm& algorithm, const Wanted& wanted,
                   double give_up = std::numeric_limits<double>::infinity());
  const std::vector<Plan>& plans_of(const Algorithm& algorithm, int root, bool all_ranks);

  Shape shape_;
  Machine machine_;
  std::vector<const Algorithm*> more_;
  std::unordered_map<uint64_t, const Algorithm*> chosen_;
  std::map<std::pair<Collective, int>, int> typical_roots_;
  // By algorithm and root: rank 0's, or all ranks'.
  std::map<std::pair<uint64_t, int>, std::vector<Plan>> plans_;
};

}  // namespace tutti
