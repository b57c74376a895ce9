// A small model whose MLP is cut over the ranks along the tensor axis, as in Shoeybi et al.:
// Megatron-LM, 2019: the first product's outputs are cut and the second one's inputs, so that
// between them nothing is sent.
//
//   contexts -> [embed] -> [x + MLP(norm(x))] x layers -> [Linear -> loss]
#pragma once

#include <cstdint>
#include <string>

#include "training/core/model.h"

namespace tutti::training::testing {

struct ParallelModelConfig {
  int64_t context = 8;
  int64_t width = 4;    // of a token; a layer's is context x width
  int64_t hidden = 24;  // of which each rank along the tensor axis has a part
  int64_t layers = 2;
  int64_t vocabulary = 256;
  // Each rank normalizes some of the rows (Korthikanti et al.: Reducing activation recomputation,
  // 2022): the gradients of the norms' parameters are partial sums.
  bool shares_rows = false;
};

class ParallelModel : public Model {
 public:
  // For the rank at this place of the mesh.
  ParallelModel(const ParallelModelConfig& config, const MeshPlace& place);

  double flops_per_sample() const override { return 0; }
  Json configuration() const override;
  int64_t targets_per_sample() const override { return 1; }

 private:
  ParallelModelConfig config_;
};

}  // namespace tutti::training::testing
