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
  RunDirectory* directory = nullptr;  // on rank 0, null elsewhere
  Json configuration;                 // the run's; rank 0's is stored
  int keep = 2;
  bool in_background = false;
  uint64_t saved = 0;  // the step that the run starts from
};

// All ranks must make the same calls.
class RunSaver {
 public:
  // Collective. `replica` and `model` outlive it.
  RunSaver(Replica& replica, Model& model, RunSaverOptions options);

  // Collective. Saves the replica's state after `step`; in the background, it waits for the
  // previous save and starts this one. `best`: the loss in the state is the lowest so far. Throws
  // as save_checkpoint() does; errors in the background are thrown by poll(), finish() or the next
  // save.
  void save(uint64_t step, Json state, bool best);
  // Collective, between steps: advances a background save as far as all ranks are ready.
  void poll();
  // Collective: blocks until a background save is complete.
  void finish();

  uint64_t saved() const { return saved_; }  // the last step whose save was begun
  int saves() const { return saves_; }       // number of completed saves
  // True if this validation loss is lower than those of all saved steps.
  bool improves(double validation_loss) const { return validation_loss < best_loss_; }
  // On this rank: bytes of copies, and time that saves blocked training.
  int64_t copies() const { return static_cast<int64_t>(memory_.size()); }
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
  std::optional<BackgroundSave> under_way_;  // destroyed before its memory
};

}  // namespace tutti::training
