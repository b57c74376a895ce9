// Where a run begins: anew, from given parameters, or at a step that was saved.
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

// Of one rank; calls are collective.
class RunOrigin {
 public:
  // Rank 0 finds out where the run goes on, before anything is computed; nothing is changed yet.
  // Throws on all ranks what RunDirectory and check_resumed() throw. `options` outlive it.
  RunOrigin(const Communicator& world, const TrainOptions& options,
            const RunConfiguration& configuration);
  RunOrigin(const RunOrigin&) = delete;
  RunOrigin& operator=(const RunOrigin&) = delete;

  // On rank 0, where there is one; else null.
  RunDirectory* directory() { return directory_ ? &*directory_ : nullptr; }
  // Loads what is resumed, or the parameters to start from, and begins to change the directory.
  // `steps`: the run's.
  struct Begun {
    uint64_t done = 0;            // steps
    Json state = Json::object();  // the trainer's, as it was saved; empty: nothing was
  };
  Begun load(Replica& replica, Model& model, uint64_t steps);

 private:
  std::string open_directory(const RunConfiguration& configuration);
  uint64_t done_in(const Json& state, uint64_t steps) const;

  Communicator world_;
  Group group_;
  const TrainOptions& options_;
  std::optional<RunDirectory> directory_;
  std::string resumed_from_;  // the step's folder; empty: a new run
};

// These ranks as the writer of a run's directory. `start`: identity of the start of the job.
Writer writer_of(const Communicator& world, const std::string& start);

// Whether the run takes TrainOptions::initial, where that is given: it goes on with no other one.
bool starts_anew(const TrainOptions& options);

// Throws what a Trainer would of the directory and the run in it, before there are ranks. Reads
// data only where a run is to be resumed.
void check_directory(const Model& model, const std::vector<const DataSet*>& data,
                     const TrainOptions& options);

}  // namespace tutti::training
