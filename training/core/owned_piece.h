// A piece of a parameter that this rank updates, with its gradient and its values.
#pragma once

#include <cstdint>
#include <span>

#include "training/core/layout.h"
#include "training/core/parameters.h"
#include "training/core/piece_loop.h"
#include "training/core/tensor.h"

namespace tutti::training {

// Views of one piece's memory; the arrays have piece.count elements and do not overlap.
struct OwnedPiece {
  Piece piece;
  const ParameterSpec* spec = nullptr;
  // The fp32 master values. Empty (training without masters): `value` is updated in place, in fp32
  // between roundings.
  std::span<float> master;
  ConstTensor gradient;  // gradient, 1 x count: f16, bf16 or f32
  // The model's copy of the values, 1 x count: f16, bf16 or f32. It is written after the update.
  // Empty if the model reads `master` itself.
  Tensor value;
  // True if another pipeline stage has the same piece (a tied embedding) and counts it in norms.
  bool copy = false;
  // Offset of the piece in each of the optimizer's state arrays, in floats. If it is negative,
  // piece.owned_offset is used instead.
  int64_t state_offset = -1;
  // If not null, part of this memory or of the optimizer's states is stored in files, and loops
  // over pieces report to this observer which elements they use (optimizers/blocks.h). All pieces
  // of a rank have the same observer.
  PieceLoopObserver* loops = nullptr;

  int64_t first_state() const { return state_offset < 0 ? piece.owned_offset : state_offset; }

  // Returns the tensor that is updated: the masters, or the values if there are no masters.
  Tensor updated() const {
    return master.empty() ? value : tensor_at(master.data(), DType::f32, 1, std::ssize(master));
  }
};

}  // namespace tutti::training
