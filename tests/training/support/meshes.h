// Small decoders, and runs of them on meshes.
#pragma once

#include <memory>
#include <string>

#include "tests/training/support/tiny_run.h"
#include "training/core/model.h"
#include "training/models/compute_options.h"

namespace tutti::training::testing {

struct Grid {
  int tensor = 1;
  int context = 1;
  int data = 1;
  int stages = 1;
  int zero = 0;
  bool sp = false;
  int experts = 1;  // ranks of a stage that divide the experts (kind "experts")

  int ranks() const { return tensor * context * data * stages; }
};

std::string describe(const Grid& grid);

// GPT-2 with packed queries, keys and values and a tied embedding ("gpt2"); Llama, with one key
// head per two query heads ("llama"); a model whose two key heads are fewer than some meshes'
// tensor ranks ("few keys"); and one with experts, of which one is shared by all tokens, and
// normalized heads ("experts"). All have 8 heads, and no vocabulary is evenly divisible.
std::unique_ptr<Model> decoder(const std::string& kind, const MeshPlace& place,
                               const ComputeOptions& compute = {}, double dropout = 0);

// 8 steps of 8 samples in micro-batches of 4, with clipping.
TinyRun run_of(const std::string& kind, const Grid& grid, ComputeOptions compute = {},
               double dropout = 0);

}  // namespace tutti::training::testing
