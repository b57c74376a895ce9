// The one value that says how a run trains: what files and options tell, ranks compare at the
// start, and a checkpoint keeps. It is JSON: {"model": {...}, "optimizer": {...}, ...}.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "training/core/model.h"
#include "training/core/schema.h"
#include "training/data/data_set.h"
#include "training/run/train_options.h"

namespace tutti::training {

// The roles of settings. Without one: the run's losses follow from it, so that a resumed run has
// the same, unless it is told otherwise.
inline constexpr const char* kLayout = "layout";  // ranks agree on it; a resumed run may differ
inline constexpr const char* kOwn = "own";        // each rank may have another
inline constexpr const char* kOnce = "once";      // of this start alone: no part of the run

// The settings that a run has whoever starts it, with the names that people give them. What an
// optimizer and a model have besides is known to their kinds.
void describe(Schema& schema, TrainOptions& options);

struct RunConfiguration {
  // All of it: what options.told says, and what follows from the others. Checkpoints keep it, and
  // --config takes it.
  Json whole;
  // By people's names of settings ("lr"): what the losses follow from,
  Json run;
  // and all that ranks agree on.
  Json everywhere;
};

RunConfiguration configuration_of(const Model& model, const std::vector<const DataSet*>& data,
                                  const TrainOptions& options);

// Collective. Throws Error(mismatch) on all ranks, which names a rank and its settings, where one
// has others than rank 0.
void check_same_everywhere(Communicator& communicator, const RunConfiguration& configuration);

// Whether a run that was saved with one configuration (RunConfiguration::whole, or what earlier
// checkpoints have) may go on with another. Throws Error(invalid_argument) that names every setting
// that differs and is not in `allowed` (as "lr" or "optimizer.lr"), and for a name in `allowed`
// that there is not. Returns the differences that are let pass, for people.
std::vector<std::string> check_resumed(const Json& saved, const RunConfiguration& now,
                                       const std::vector<std::string>& allowed,
                                       const std::string& where);

}  // namespace tutti::training
