// The values that are validated and saved where each rank has its own
// (Synchronizer::sums_gradients): their mean, or values that all ranks share.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "collectives/communicator.h"
#include "training/parallel/storage.h"

namespace tutti::training {

class MeanValues {
 public:
  // `storage`, the same pieces on each rank, outlives it. `shared`: f32 values in the order of
  // owned pieces, which are copied; empty: the mean is made, collective over `ranks`.
  MeanValues(ParameterStorage& storage, Communicator ranks, std::span<const float> shared);

  // What is updated of an owned piece, of the mean.
  Tensor of(const OwnedPiece& piece);

  // While it lives, the storage holds the mean and `mean` this rank's own values.
  class Shown {
   public:
    explicit Shown(MeanValues& mean) : mean_(mean) { mean_.exchange(); }
    ~Shown() { mean_.exchange(); }
    Shown(const Shown&) = delete;
    Shown& operator=(const Shown&) = delete;

   private:
    MeanValues& mean_;
  };

 private:
  void exchange();

  ParameterStorage& storage_;
  std::vector<size_t> offsets_;  // by owned piece, in bytes
  std::vector<std::byte> bytes_;
};

}  // namespace tutti::training
