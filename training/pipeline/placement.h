// The part of a model on one rank of a pipeline, derived from a plan and the first units of all
// chunks.
#pragma once

#include <vector>

#include "training/core/model.h"
#include "training/pipeline/plan.h"
#include "training/pipeline/runner.h"

namespace tutti::training::pipeline {

struct Placement {
  std::vector<UnitRange> chunks;  // all chunks of the model, in forward order
  std::vector<int> own_chunks;    // chunks on this rank, ascending
  // The pipeline ranks that have the same chunks as this rank, including this rank (Chimera's
  // pairs). Their gradients are summed together.
  std::vector<int> holders;
  std::vector<int> parameters;  // parameters of the own chunks, ascending
  // The parameters of this rank that an earlier chunk on another rank also has. The other rank
  // counts them in norms and checkpoints.
  std::vector<int> copies;
  // A parameter whose gradient is the sum of a term of this rank and a term of another pipeline
  // rank.
  struct Joined {
    int parameter = 0;
    int peer = 0;
  };
  std::vector<Joined> joined;
  bool has_shared_across = false;  // true if chunks on different ranks share a parameter

  bool has_unit(int unit) const;
  bool has_loss() const { return own_chunks.back() + 1 == static_cast<int>(chunks.size()); }
};

// Computes the placement of pipeline rank `rank`. `cut`: the first unit of each chunk. Throws
// Error(invalid_argument) for an invalid cut, or if a parameter that different chunks share is on
// more than two ranks.
Placement make_placement(const Plan& plan, Model& model, const std::vector<int>& cut, int rank);

// Returns, for each unit of the model, how often pipeline rank `rank` runs its backward in the
// plan. `units`: number of units of the model.
std::vector<int64_t> passes_by_unit(const Plan& plan, const Placement& placement, int rank,
                                    int units);

// Returns the estimated cost of each unit: the number of elements of its matrices on this rank, or
// 0 for units such as an embedding, whose backward_needs_nothing().
std::vector<double> estimated_costs(Model& model);
// Returns the first unit of each chunk, for chunks of balanced estimated costs: calls
// balanced_cut() of partition.h and throws as it does.
std::vector<int> estimated_cut(Model& model, int chunks);

}  // namespace tutti::training::pipeline
