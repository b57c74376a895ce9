// Saves a run's checkpoints, blocking or in the background.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/json.h"
#include "training/checkpoint/background_save.h"
#include "training/checkpoint/run_directory.h"
#include "training/core/model.h"
#include "training/engine/replica.h"

namespace tutti::training {

struct RunSaverOptions {
  RunDirectory* directory = nullptr;  // directory of the run on rank 0; null on other ranks
  Json configuration;                 // configuration of the run; rank 0's is stored
  int keep = 2;
  bool in_background = false;
  uint64_t saved = 0;  // step from which the run starts
};

// Saves checkpoints. All ranks must make the same calls.
class RunSaver {
 public:
  // Collective. `replica` and `model` must outlive the object.
  RunSaver(Replica& replica, Model& model, RunSaverOptions options);

  // Collective. Waits for the previous background save, then saves the replica's state after
  // `step`. In the background mode, returns once the save has started. `best`: true if the
  // validation loss in `state` is the lowest so far. Throws as save_checkpoint() does; errors in
  // the background are thrown by poll(), finish() or the next save.
  void save(uint64_t step, Json state, bool best);
  // Collective, called between steps. Advances a background save by one phase if no rank is still
  // busy with the current phase.
  void poll();
  // Collective: blocks until a background save is complete.
  void finish();

  uint64_t saved() const { return saved_; }  // Returns the last step whose save was begun.
  int saves() const { return saves_; }       // Returns the number of completed saves.
  // Returns true if this validation loss is lower than that of every saved step.
  bool improves(double validation_loss) const { return validation_loss < best_loss_; }
  // Returns the bytes of this rank's memory for copies of the state (background saves).
  int64_t copies() const { return static_cast<int64_t>(memory_.size()); }
  // Returns the time for which saves blocked training on this rank.
  std::chrono::nanoseconds lost() const { return lost_; }

 private:
  void advance();

  Replica& replica_;
  Model& model_;
  RunSaverOptions options_;
  uint64_t saved_;
  int saves_ = 0;
  double best_loss_;
  std::chrono::nanoseconds lost_{0};
  std::vector<std::byte> memory_;
  // declared last, so that it is destroyed before memory_, which it uses
  std::optional<BackgroundSave> in_flight_;
};

}  // namespace tutti::training
