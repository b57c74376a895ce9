// A neural probabilistic language model (Bengio, Ducharme, Vincent, Jauvin, JMLR 2003). It embeds
// the last tokens, applies hidden layers, and predicts the next token by a softmax. Small and fast,
// it is the default of `tutti train`.
//
//   contexts -> [embed] -> [Linear -> GELU] x layers -> [Linear -> loss]
#pragma once

#include <cstdint>

#include "training/core/model.h"
#include "training/models/registry.h"

namespace tutti::training {

struct MlpModelConfig {
  int64_t context = 8;       // number of tokens from which the next token is predicted
  int64_t embedding = 32;    // values of a token's embedding
  int64_t hidden = 256;      // values per hidden layer
  int64_t layers = 1;        // number of hidden layers
  int64_t vocabulary = 256;  // number of different tokens
};

class MlpModel : public Model {
 public:
  // Creates the part of the rank at `place`. Supports pipeline stages, but no sharded parameters.
  // Throws Error(invalid_argument) for sizes below 1.
  explicit MlpModel(const MlpModelConfig& config, const MeshPlace& place = {});

  double flops_per_sample() const override;
  Json configuration() const override;
  int64_t targets_per_sample() const override { return 1; }

 private:
  MlpModelConfig config_;
};

ModelKind mlp_kind();

}  // namespace tutti::training
