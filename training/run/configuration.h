// The configuration that defines how a run trains. Files and options set it, ranks compare it at
// the start, and checkpoints contain it. It is JSON: {"model": {...}, "optimizer": {...}, ...}.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "training/core/model.h"
#include "training/core/schema.h"
#include "training/data/data_set.h"
#include "training/run/train_options.h"

namespace tutti::training {

// Roles of settings. Settings without a role determine the run's losses: a resumed run must have
// the same values, unless the user explicitly allows a change.
inline constexpr const char* kLayout = "layout";  // equal on all ranks; a resumed run may change it
inline constexpr const char* kOwn = "own";        // may differ between ranks
inline constexpr const char* kOnce = "once";      // applies to this start only

// Adds the settings that all runs have, with the names that users give them, to `schema`. The kinds
// of optimizers and models describe their own settings.
void describe(Schema& schema, TrainOptions& options);

struct RunConfiguration {
  // The whole configuration: TrainOptions::configuration and the settings derived from it.
  // Checkpoints contain it, and --config reads it.
  Json whole;
  // The settings that determine the losses, by short names ("lr").
  Json run;
  // All settings that must be equal on all ranks, by short names.
  Json everywhere;
};

RunConfiguration configuration_of(const Model& model, const std::vector<const DataSet*>& data,
                                  const TrainOptions& options);

// Collective. Throws Error(mismatch) on all ranks if a rank's settings differ from rank 0's; the
// error names the rank and its settings.
void check_same_everywhere(Communicator& communicator, const RunConfiguration& configuration);

// Checks that a run that was saved with one configuration (RunConfiguration::whole, or an earlier
// format) may continue with another. `allowed`: names of settings that may differ ("lr" or
// "optimizer.lr"), in addition to "samples". Throws Error(invalid_argument) that names the other
// settings that differ, or a name in `allowed` that is unknown or whose setting no run may change.
// `where`: the saved run's path, for errors. Returns the accepted differences as text.
std::vector<std::string> check_resumed(const Json& saved, const RunConfiguration& now,
                                       const std::vector<std::string>& allowed,
                                       const std::string& where);

}  // namespace tutti::training
