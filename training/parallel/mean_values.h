// The values to validate and save if values differ between ranks (Synchronizer::sums_gradients):
// their mean, or values that all ranks share.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "collectives/communicator.h"
#include "training/parallel/storage.h"

namespace tutti::training {

class MeanValues {
 public:
  // Copies `shared`, f32 values in the order of owned pieces. If `shared` is empty, computes the
  // mean of the ranks' values, which is collective over `ranks`. `storage`, which must have the
  // same pieces on each rank, must outlive the object.
  MeanValues(ParameterStorage& storage, Communicator ranks, std::span<const float> shared);

  // Returns the part of the mean that corresponds to OwnedPiece::updated().
  Tensor of(const OwnedPiece& piece);

  // Exchanges values: while the object exists, the storage holds the mean, and `mean` holds this
  // rank's own values.
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
  std::vector<size_t> offsets_;  // by owned piece: offset in bytes
  std::vector<std::byte> bytes_;
};

}  // namespace tutti::training
