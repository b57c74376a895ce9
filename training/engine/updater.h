// Updates values by summed gradients: norm, clipping, the optimizer with its state, and the loss
// scale.
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

// See ReplicaOptions.
struct UpdaterOptions {
  std::optional<double> clip;
  std::optional<LossScalerOptions> loss_scaling;
  bool stochastic_rounding = false;
  uint64_t seed = 1;
};

// Updates the pieces that one rank owns. Calls are collective where their NormReducer is.
class Updater {
 public:
  // Allocates state for the pieces that `storage` owns; the ranks of `group` share the rest.
  // `model` and `storage` must outlive it.
  Updater(std::unique_ptr<Optimizer> optimizer, Model& model, ParameterStorage& storage,
          Communicator& group, const UpdaterOptions& options);

  // The factor of the next step's loss.
  double loss_scale() const { return scaler_ ? scaler_->scale() : 1; }
  // Updates once, and returns the unscaled norm of the gradients of all ranks that the reducer
  // covers. If the norm is not finite, nothing is updated. `pieces` are those that the storage
  // owns, possibly with other gradients.
  double update(std::span<const OwnedPiece> pieces, double learning_rate, NormReducer& reducer);
  // For elementwise optimizers: updates by the gradients times `factor`, without computing a norm.
  void update_elements(std::span<const OwnedPiece> pieces, double learning_rate, double factor);
  // Updates without waiting for a norm. Returns the sum of the squares of this rank's gradients
  // that count in norms.
  ExactSum update_unseen(double learning_rate, NormReducer& reducer);
  // Call after each step; `overflow`: some rank's gradients were not finite. Returns false for an
  // overflow that a lower loss scale cannot avoid.
  bool adapt_scale(bool overflow);

  // Zeroes the optimizer's state and the number of updates.
  void restart();

  // Number of updates: steps without skipped ones.
  int64_t updates() const { return updates_; }
  void set_updates(int64_t updates) { updates_ = updates; }  // made by other ranks
  const Optimizer& optimizer() const { return *optimizer_; }
  const std::optional<LossScaler>& scaler() const { return scaler_; }
  // Names of the optimizer's states: "optimizer.m" ...
  std::vector<std::string> kinds() const;
  // Elements of a piece in state number `state`, 1 x count: f32, or u8 codes.
  Tensor state_of(const OwnedPiece& piece, size_t state) const;
  int64_t bytes() const;  // size of the states, in memory or in files
  // Size of the states of the two largest whole parameters.
  int64_t bytes_of_wholes() const {
    return whole_states_.floats_of_two() * static_cast<int64_t>(sizeof(float));
  }
  void visit_state(StateVisitor& visitor);

 private:
  // Scales of the blocks of a piece, the factors of its codes; empty if the state has none.
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
  std::vector<Memory<float>> states_;  // state_floats_ each
  int64_t state_floats_ = 0;
  WholeStates whole_states_;
  Memory<float> whole_memory_;
  std::optional<OffloadedWholes> offloaded_wholes_;  // if the optimizer is in files
  std::map<int64_t, int64_t> first_states_;          // of pieces, by their owned_offset
  std::optional<RankMatrices> matrices_;             // of sharded matrices
  std::optional<LossScaler> scaler_;
  int64_t updates_ = 0;
};

}  // namespace tutti::training
