// Options of how a model computes, which are not part of its configuration because they do not
// change what the model learns.
#pragma once

#include <cstdint>

#include "training/models/mix.h"

namespace tutti::training {

// How ranks along the context axis compute attention together (parallel/ring_attention.h,
// parallel/heads_attention.h). Each of these ranks has some of a sample's tokens.
enum class ContextKind : uint8_t {
  automatic,  // heads if each rank gets equally many and sends less than in a ring; otherwise ring
  ring,
  heads,
};

struct ComputeOptions {
  // True: forward does not keep the outputs of normalizations and activation functions, and
  // backward recomputes them. They are cheap to compute and large to keep (selective recomputation,
  // Korthikanti et al. 2022).
  bool selective_recomputation = false;
  // True: between layers each tensor-parallel rank has some of the rows of tokens
  // (residual_stream.h).
  bool sequence_parallel = false;
  // True: sums over tensor-parallel ranks overlap with matrix products (parallel/sum_over_ranks.h).
  bool overlaps_sums = true;
  ContextKind context = ContextKind::automatic;
  // Number of rows whose logits are computed at a time. 0: the logits of all rows are computed at
  // once, and kept for backward.
  int64_t loss_chunk = 0;
  // Deterministic mode: number of slices of the computations that tensor-parallel ranks share
  // (core/slices.h), which is a multiple of the number of tensor-parallel ranks. Otherwise 1.
  int slices = 1;
  // Division of each layer over the tensor-parallel ranks, for models that support mixes
  // (mixed_network.h). Empty: every layer is model-parallel.
  Mix mix = {};
};

}  // namespace tutti::training
