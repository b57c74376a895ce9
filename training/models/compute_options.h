// Options of a model's computation outside of its configuration: they do not change the training.
#pragma once

#include <cstdint>

#include "training/models/mix.h"

namespace tutti::training {

// Attention among ranks along the context axis, each of which has some of a sample's tokens
// (parallel/ring_attention.h, parallel/heads_attention.h).
enum class ContextKind : uint8_t {
  automatic,  // heads if all heads divide evenly and traffic is less; otherwise ring
  ring,
  heads,
};

struct ComputeOptions {
  // Recompute normalizations and activations in backward instead of keeping them (selective
  // recomputation, Korthikanti et al. 2022: outputs that are cheap to compute and large to keep).
  bool selective_recomputation = false;
  // Between layers each tensor rank has some of the tokens' rows (residual_stream.h).
  bool sequence_parallel = false;
  // Overlap sums over tensor ranks with products (parallel/sum_over_ranks.h).
  bool overlaps_sums = true;
  ContextKind context = ContextKind::automatic;
  // Number of rows whose logits are computed at a time; 0: all, and they are kept for backward.
  int64_t loss_chunk = 0;
  // Deterministic mode: number of slices of computations that tensor ranks share (core/slices.h), a
  // multiple of their number; otherwise 1.
  int slices = 1;
  // Division of each layer over the tensor ranks, for models that support mixes (mixed_network.h).
  // Empty: all layers are model-parallel.
  Mix mix = {};
};

}  // namespace tutti::training
