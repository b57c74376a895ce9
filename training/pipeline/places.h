// Describes a rank's position in a pipeline, for errors.
#pragma once

#include <optional>
#include <string>

#include "base/error.h"
#include "collectives/communicator.h"
#include "training/pipeline/plan.h"

namespace tutti::training::pipeline {

// Returns true if other ranks reported the error, or caused it; false if this rank caused it.
bool follows_from_other_rank(ErrorCode code);

// An error with the positions of the ranks involved.
class PlacedError : public Error {
 public:
  PlacedError(const Error& error, const std::string& where)
      : Error(error.code(), error.what(), {.where = where, .rank = error.rank()}) {}
};

// Returns the position of this rank in its plan, and what it needs: "rank 1 (node7, pid 1234),
// stage 1, in the backward of micro-batch 3 through chunk 1, which needs the backward of
// micro-batch 3 through chunk 2 on rank 2 (...), stage 2". Names the rank `culprit` if the action's
// entry depends on that rank, otherwise the neighbouring stage.
std::string place_of(const Action& action, const Plan& plan, const Communicator& stages,
                     std::optional<int> culprit = std::nullopt);

}  // namespace tutti::training::pipeline
