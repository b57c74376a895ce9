// Which part of a model a rank of a pipeline has: from a plan and the places where the model is
// cut.
#pragma once

#include <vector>

#include "training/core/model.h"
#include "training/pipeline/plan.h"
#include "training/pipeline/runner.h"

namespace tutti::training::pipeline {

struct Placement {
  std::vector<UnitRange> chunks;  // of the whole model, in forward order
  std::vector<int> own_chunks;    // ascending
  // Ranks of the pipeline with the same chunks as this one, itself included: Chimera's pairs. Their
  // gradients are summed together.
  std::vector<int> holders;
  std::vector<int> parameters;  // of the own chunks, ascending
  // Of these, the ones that an earlier chunk on another rank has too, and counts.
  std::vector<int> copies;
  // A parameter whose gradient is made in two places: here, and on another rank of the pipeline.
  struct Joined {
    int parameter = 0;
    int peer = 0;
  };
  std::vector<Joined> joined;
  bool has_shared_across = false;  // on any two ranks

  bool has_unit(int unit) const;
  bool has_loss() const { return own_chunks.back() + 1 == static_cast<int>(chunks.size()); }
};

// `cut`: the first unit of each chunk. Throws Error(invalid_argument) where that makes no sense, or
// where a parameter is shared in a way that no two stages can add up.
Placement make_placement(const Plan& plan, Model& model, const std::vector<int>& cut, int rank);

// By how often this rank's plan runs each unit's backward.
std::vector<int64_t> passes_by_unit(const Plan& plan, const Placement& placement, int rank,
                                    int units);

// What a unit costs, about: the elements of the matrices it multiplies with.
std::vector<double> estimated_costs(Model& model);
// A cut where nothing was measured: balanced by these (partition.h). Throws as balanced_cut() does.
std::vector<int> estimated_cut(Model& model, int chunks);

}  // namespace tutti::training::pipeline
