// Describes a rank's position in a pipeline, for errors.
#pragma once

#include <optional>
#include <string>

#include "base/error.h"
#include "collectives/communicator.h"
#include "training/pipeline/plan.h"

namespace tutti::training::pipeline {

// Returns true for the codes of errors that another rank caused or reported, such as rank_died,
// timeout and aborted.
bool follows_from_other_rank(ErrorCode code);

// An error with the positions of the ranks involved.
class PlacedError : public Error {
 public:
  PlacedError(const Error& error, const std::string& where)
      : Error(error.code(), error.what(), {.where = where, .rank = error.rank()}) {}
};

// Describes what this rank is doing, and the result of another rank that it waits for: "rank 1
// (node7, pid 1234), stage 1, in the backward of micro-batch 3 through chunk 1, which needs the
// backward of micro-batch 3 through chunk 2 on rank 2 (...), stage 2". If the action's entry needs
// a result of rank `culprit`, directly or through other stages, the text has that result. Otherwise
// it has the result that the entry needs directly, and then the culprit's stage. `culprit`: index
// in `stages` of the rank that caused the error.
std::string place_of(const Action& action, const Plan& plan, const Communicator& stages,
                     std::optional<int> culprit = std::nullopt);

}  // namespace tutti::training::pipeline
