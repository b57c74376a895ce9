// Starts a run from random values, from given parameters, or from a saved step.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/json.h"
#include "collectives/communicator.h"
#include "training/checkpoint/run_directory.h"
#include "training/core/group.h"
#include "training/core/model.h"
#include "training/engine/replica.h"
#include "training/run/configuration.h"
#include "training/run/train_options.h"

namespace tutti::training {

// The start of a run. Each rank has one object; calls are collective.
class RunOrigin {
 public:
  // Finds the step to resume on rank 0, before anything is computed or changed. `options` must
  // outlive the object. Throws on all ranks what RunDirectory and check_resumed() throw.
  RunOrigin(const Communicator& world, const TrainOptions& options,
            const RunConfiguration& configuration);
  RunOrigin(const RunOrigin&) = delete;
  RunOrigin& operator=(const RunOrigin&) = delete;

  // Returns the run's directory. Null on ranks other than 0, and for a run without a directory.
  RunDirectory* directory() { return directory_ ? &*directory_ : nullptr; }
  // Result of load().
  struct Begun {
    uint64_t done = 0;            // number of completed steps
    Json state = Json::object();  // the trainer's saved state; empty: a new run
  };
  // Loads the state kept in memory, the step to resume, or the initial parameters. Then calls
  // RunDirectory::begin(), which allows changes to the run's directory. `steps`: number of steps of
  // the run.
  Begun load(Replica& replica, Model& model, uint64_t steps);

 private:
  std::string open_directory(const RunConfiguration& configuration);
  uint64_t done_in(const Json& state, uint64_t steps) const;

  Communicator world_;
  Group group_;
  const TrainOptions& options_;
  std::optional<RunDirectory> directory_;
  std::string resumed_from_;  // folder of the resumed step; empty: a new run
};

// Returns the description of these ranks as the writer of a run's directory. `start`: ID of this
// launch of the job.
Writer writer_of(const Communicator& world, const std::string& start);

// Returns true if the run does not resume a saved step, so that it starts from
// TrainOptions::initial, if that is set.
bool starts_over(const TrainOptions& options);

// Checks the checkpoint directory before ranks exist: throws what a Trainer would throw for the
// directory and for the run in it. Reads data only if a run is to be resumed.
void check_directory(const Model& model, const std::vector<const DataSet*>& data,
                     const TrainOptions& options);

}  // namespace tutti::training
