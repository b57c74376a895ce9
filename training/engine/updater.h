// Updates parameter values from summed gradients: computes the norm, clips, runs the optimizer, and
// adapts the loss scale.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/communicator.h"
#include "training/core/model.h"
#include "training/core/state.h"
#include "training/engine/offloaded_wholes.h"
#include "training/optimizers/exact_sum.h"
#include "training/optimizers/loss_scaler.h"
#include "training/optimizers/optimizer.h"
#include "training/parallel/rank_matrices.h"
#include "training/parallel/storage.h"

namespace tutti::training {

// Members as in ReplicaOptions.
struct UpdaterOptions {
  std::optional<double> clip;
  std::optional<LossScalerOptions> loss_scaling;
  bool stochastic_rounding = false;
  uint64_t seed = 1;
};

// Updates the pieces that one rank owns. A call that takes a NormReducer is collective if the
// reducer is.
class Updater {
 public:
  // Allocates the optimizer's state for the pieces that `storage` owns. The ranks of `group` own
  // the other pieces of the same parameters. `model` and `storage` must outlive the updater.
  Updater(std::unique_ptr<Optimizer> optimizer, Model& model, ParameterStorage& storage,
          Communicator& group, const UpdaterOptions& options);

  // Returns the factor by which the next step's loss is multiplied.
  double loss_scale() const { return scaler_ ? scaler_->scale() : 1; }
  // Updates `pieces` once, and returns the unscaled norm of the gradients of all ranks that the
  // reducer covers. If the norm is not finite, changes nothing. `pieces` are those that the storage
  // owns, possibly with other gradients.
  double update(std::span<const OwnedPiece> pieces, double learning_rate, NormReducer& reducer);
  // Updates by the gradients times `factor`, without computing a norm. For elementwise optimizers
  // only.
  void update_elements(std::span<const OwnedPiece> pieces, double learning_rate, double factor);
  // Updates without waiting for the norm over all ranks. Returns the sum of the squares of this
  // rank's gradients that count in norms.
  ExactSum update_unseen(double learning_rate, NormReducer& reducer);
  // Adapts the loss scale after a step; `overflow`: true if some rank's gradients were not finite.
  // Returns false for an overflow that a lower loss scale cannot avoid, which is any overflow
  // without loss scaling.
  bool adapt_scale(bool overflow);

  // Zeroes the optimizer's state and the number of updates.
  void restart();

  // Returns the number of updates: steps without the skipped ones.
  int64_t updates() const { return updates_; }
  void set_updates(int64_t updates) { updates_ = updates; }  // used for updates by other ranks
  const Optimizer& optimizer() const { return *optimizer_; }
  const std::optional<LossScaler>& scaler() const { return scaler_; }
  // Returns the names of the optimizer's states: "optimizer.m" ...
  std::vector<std::string> kinds() const;
  // Returns a piece's elements of the state with index `state`, 1 x count: f32, or u8 codes.
  Tensor state_of(const OwnedPiece& piece, size_t state) const;
  int64_t bytes() const;  // bytes of the states, in memory or in files
  // Returns the bytes of the states of the two largest whole parameters.
  int64_t bytes_of_wholes() const {
    return whole_states_.floats_of_two() * static_cast<int64_t>(sizeof(float));
  }
  void visit_state(StateVisitor& visitor);

 private:
  // Returns the scales of a piece's blocks, by which its codes are multiplied; empty if the state
  // has no scales.
  Tensor scales_of(const OwnedPiece& piece, size_t state) const;
  float* memory_of(const OwnedPiece& piece, size_t state) const;
  void offload();
  void add_memory(const PieceRange& range, std::vector<PageRange>& memory) const;
  void step(std::span<const OwnedPiece> pieces, double learning_rate, double gradient_factor,
            NormReducer& reducer);

  std::unique_ptr<Optimizer> optimizer_;
  Model& model_;
  ParameterStorage& storage_;
  UpdaterOptions options_;
  std::vector<Memory<float>> states_;  // each has state_floats_ elements
  int64_t state_floats_ = 0;
  WholeStates whole_states_;
  Memory<float> whole_memory_;
  std::optional<OffloadedWholes> offloaded_wholes_;  // set if the optimizer's states are in files
  // key: a piece's owned_offset; value: offset of its states
  std::map<int64_t, int64_t> first_states_;
  std::optional<RankMatrices> matrices_;  // computes updates of sharded matrices
  std::optional<LossScaler> scaler_;
  int64_t updates_ = 0;
};

}  // namespace tutti::training
