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
  ConstTensor gradient;  // 1 x count: f16, bf16 or f32
  // 1 x count: f16, bf16 or f32. The model's copy, written after the update. Empty where the model
  // reads `master` itself.
  Tensor value;
  // Another pipeline stage has the same piece (a tied embedding) and counts it in norms.
  bool copy = false;
  // Offset of the piece in each of the optimizer's state arrays, in floats. Negative:
  // piece.owned_offset.
  int64_t state_offset = -1;
  // If not null, some of this memory or of the states is in files, and loops over pieces report to
  // it what they use (optimizers/blocks.h). All pieces of a rank have the same observer.
  PieceLoopObserver* loops = nullptr;

  int64_t first_state() const { return state_offset < 0 ? piece.owned_offset : state_offset; }

  // The tensor that is updated: the masters, or the values themselves.
  Tensor updated() const {
    return master.empty() ? value : tensor_at(master.data(), DType::f32, 1, std::ssize(master));
  }
};

}  // namespace tutti::training
