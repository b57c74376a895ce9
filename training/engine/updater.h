// What makes new values of summed gradients: their norm, clipping, the optimizer with its state,
// the scale of the loss.
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

// As in ReplicaOptions.
struct UpdaterOptions {
  std::optional<double> clip;
  std::optional<LossScalerOptions> loss_scaling;
  bool stochastic_rounding = false;
  uint64_t seed = 1;
};

// Of the pieces that one rank owns. Collective where a NormReducer is.
class Updater {
 public:
  // State is for what `storage` owns; the ranks of `group` share that. `model` and `storage`
  // outlive this.
  Updater(std::unique_ptr<Optimizer> optimizer, Model& model, ParameterStorage& storage,
          Communicator& group, const UpdaterOptions& options);

  // What the next step's loss is multiplied by.
  double loss_scale() const { return scaler_ ? scaler_->scale() : 1; }
  // Updates once, and returns the norm of the gradients of all that the reducer reaches, unscaled.
  // One that is not finite: nothing is updated. `pieces` are the storage's owned ones, which may
  // have other gradients.
  double update(std::span<const OwnedPiece> pieces, double learning_rate, NormReducer& reducer);
  // The same by gradients times a factor, without asking for a norm: of an optimizer that is
  // elementwise.
  void update_elements(std::span<const OwnedPiece> pieces, double learning_rate, double factor);
  // Updates without asking for a norm. Returns the sum of the squares of this rank's gradients that
  // count.
  ExactSum update_unseen(double learning_rate, NormReducer& reducer);
  // After each step: whether any rank's gradients were not finite. False for an overflow that is
  // not the loss scale's fault.
  bool adapt_scale(bool overflow);

  // Zeroes the optimizer's state and the number of updates, as before the first update.
  void restart();

  // How many updates were made: steps without those that were skipped.
  int64_t updates() const { return updates_; }
  void set_updates(int64_t updates) { updates_ = updates; }  // that other ranks made
  const Optimizer& optimizer() const { return *optimizer_; }
  const std::optional<LossScaler>& scaler() const { return scaler_; }
  // "optimizer.m" ...
  std::vector<std::string> kinds() const;
  // Elements of a piece in the state of that number, 1 x count: f32, or u8 codes.
  Tensor state_of(const OwnedPiece& piece, size_t state) const;
  int64_t bytes() const;  // of states, in memory or in files
  int64_t bytes_of_wholes() const {
    return whole_states_.floats_of_two() * static_cast<int64_t>(sizeof(float));
  }
  void visit_state(StateVisitor& visitor);

 private:
  // The scales of the blocks of a piece, by which codes are multiplied; empty where the state has
  // none.
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
  std::vector<Memory<float>> states_;  // of state_floats_ each
  int64_t state_floats_ = 0;
  WholeStates whole_states_;
  Memory<float> whole_memory_;
  std::optional<OffloadedWholes> offloaded_wholes_;  // where the optimizer is in files
  std::map<int64_t, int64_t> first_states_;          // of pieces, by their owned_offset
  std::optional<RankMatrices> matrices_;             // of what is sharded
  std::optional<LossScaler> scaler_;
  int64_t updates_ = 0;
};

}  // namespace tutti::training
