// The checkpoints of a run: saved at once, or while training goes on.
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
  uint64_t saved = 0;  // the step that the run goes on from
};

// All ranks make the same calls.
class RunSaver {
 public:
  // Collective. `replica` and `model` outlive it.
  RunSaver(Replica& replica, Model& model, RunSaverOptions options);

  // Collective. Saves the replica as it is after `step`, or begins to, when the save before is
  // over. `best`: its loss, in the state, is the lowest so far. Throws as save_checkpoint() does;
  // what goes wrong in the background poll(), finish() or the next save throw.
  void save(uint64_t step, Json state, bool best);
  // Collective, between steps: carries a save in the background on where all ranks are ready.
  void poll();
  // Collective: waits until what was begun is saved.
  void finish();

  uint64_t saved() const { return saved_; }  // the last step that was saved, or begun to be
  int saves() const { return saves_; }       // that are over
  // Whether a step with that loss on what is held out is better than all that were saved.
  bool improves(double validation_loss) const { return validation_loss < best_loss_; }
  // Of this rank: bytes of copies, and the time that training stood still.
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
  std::optional<BackgroundSave> under_way_;  // ends before its memory
};

}  // namespace tutti::training
