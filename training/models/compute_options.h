// How a model computes, which its configuration does not say: none of it changes what is trained.
#pragma once

#include <cstdint>

#include "training/models/mix.h"

namespace tutti::training {

// How ranks along the context axis, which each have some of a sample's tokens, attend to the
// others' (parallel/ring_attention.h, parallel/heads_attention.h).
enum class ContextKind : uint8_t {
  automatic,  // heads where every rank gets as many, also of keys, and sends less by it
  ring,
  heads,
};

struct ComputeOptions {
  // Normalizations and activations are computed anew in backward instead of kept (selective
  // recomputation, Korthikanti et al. 2022: what is cheap to compute and large to keep).
  bool selective_recomputation = false;
  // Between layers each tensor rank has some of the tokens' rows (residual_stream.h).
  bool sequence_parallel = false;
  // Sums over tensor ranks go on beside the products (parallel/sum_over_ranks.h).
  bool overlaps_sums = true;
  ContextKind context = ContextKind::automatic;
  // Rows whose logits are there at once; 0: all, and they are kept for backward.
  int64_t loss_chunk = 0;
  // Deterministic mode: how many parts what tensor ranks share is computed in (core/slices.h), a
  // multiple of their number; else 1.
  int slices = 1;
  // How each layer is divided over the tensor ranks, of models that can mix (mixed_network.h).
  // Empty: all are model-parallel.
  Mix mix = {};
};

}  // namespace tutti::training
