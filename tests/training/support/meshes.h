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
  int experts = 1;  // ranks of a stage among which the experts are divided (kind "experts")

  int ranks() const { return tensor * context * data * stages; }
};

std::string describe(const Grid& grid);

// Returns a small model of one of these kinds:
//   gpt2      GPT-2 with packed queries, keys and values and a tied embedding
//   llama     Llama, with one key head per two query heads
//   few keys  two key heads, fewer than the tensor ranks of some meshes
//   experts   experts, one of them shared by all tokens, and normalized heads
// All have 8 heads. The size of the vocabulary is never divisible by the number of ranks.
std::unique_ptr<Model> decoder(const std::string& kind, const MeshPlace& place,
                               const ComputeOptions& compute = {}, double dropout = 0);

// 8 steps with gradient clipping. Each has 8 samples in micro-batches of 4.
TinyRun run_of(const std::string& kind, const Grid& grid, ComputeOptions compute = {},
               double dropout = 0);

}  // namespace tutti::training::testing
