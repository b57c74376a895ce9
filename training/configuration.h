// The one value that says how a run trains: what ranks compare at the start, and a checkpoint
// keeps.
//
// Settings have the names of `tutti train`'s options, without the dashes, and values as text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "training/checkpoint/manifest.h"
#include "training/data/data_set.h"
#include "training/model.h"
#include "training/trainer.h"

namespace tutti::training {

struct RunConfiguration {
  // What the run's losses follow from: kept in checkpoints; a resumed run has the same, unless it
  // is told otherwise.
  Configuration run;
  // What the ranks must agree on besides: how the run is laid out over them, what they save and
  // when. A resumed run may have others.
  Configuration layout;
};

// Reads all data, for its fingerprint.
RunConfiguration configuration_of(const Model& model, const std::vector<const DataSet*>& data,
                                  const TrainOptions& options);

// 64 bits that are the same for the same values.
uint64_t hash_of(const RunConfiguration& configuration);

// Collective. Throws Error(mismatch) on all ranks, which names a rank and its settings, where one
// has others than rank 0.
void check_same_everywhere(Communicator& communicator, const RunConfiguration& configuration);

// Whether a run that was saved with one configuration may go on with another. Throws
// Error(invalid_argument) that names every setting that differs and is not in `allowed`, and for a
// name in `allowed` that there is not. Returns the differences that are let pass, for people.
std::vector<std::string> check_resumed(const Configuration& saved, const Configuration& now,
                                       const std::vector<std::string>& allowed,
                                       const std::string& where);

}  // namespace tutti::training
