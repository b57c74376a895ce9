// A run on one rank, with the objects that it needs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "training/parallel/mesh.h"
#include "training/parallel/rank_statistics.h"
#include "training/run/trainer.h"
#include "training/setup/data.h"
#include "training/setup/options.h"

namespace tutti::training {

class Session {
 public:
  // Collective over `world`. Settles the options and creates the objects. Throws as settle() and
  // Trainer do.
  Session(Communicator world, RunOptions options, std::shared_ptr<const LoadedData> data);

  const RunOptions& options() const { return options_; }  // Returns the settled options.
  const LoadedData& data() const { return *data_; }
  const Communicator& world() const { return mesh_.world(); }
  Model& model() { return *model_; }
  Trainer& trainer() { return trainer_; }

 private:
  std::shared_ptr<const LoadedData> data_;
  RunOptions options_;
  Mesh mesh_;
  RankStatistics statistics_;
  RankStatistics tile_statistics_;
  std::unique_ptr<Model> model_;
  Trainer trainer_;
};

// Creates this rank's session. `words` are command-line options and override `configuration`.
// Collective over `world`: every rank parses the options and loads the data. If that fails on one
// rank, all ranks throw Error, and the communicator remains usable.
std::unique_ptr<Session> begin_session(Communicator world, const std::vector<std::string>& words,
                                       const Json& configuration = Json::object());

}  // namespace tutti::training
