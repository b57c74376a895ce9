// Where in a pipeline an error found a rank, in words.
#pragma once

#include <optional>
#include <string>

#include "base/error.h"
#include "collectives/communicator.h"
#include "training/pipeline/plan.h"

namespace tutti::training::pipeline {

// Whether an error was told by other ranks, or is about them; else it is this rank's own.
bool told_by_others(ErrorCode code);

// An error with the places where it found ranks.
class PlacedError : public Error {
 public:
  PlacedError(const Error& error, const std::string& where)
      : Error(error.code(), error.what(), {.where = where, .rank = error.rank()}) {}
};

// "rank 1 (node7, pid 1234), stage 1, in the backward of micro-batch 3 through chunk 1, which needs
// the backward of micro-batch 3 through chunk 2 on rank 2 (...), stage 2": where this rank is in
// its plan, and what it needs, from the culprit if its entry depends on that one, else from the
// stage next to it.
std::string place_of(const Action& action, const Plan& plan, const Communicator& stages,
                     std::optional<int> culprit = std::nullopt);

}  // namespace tutti::training::pipeline
