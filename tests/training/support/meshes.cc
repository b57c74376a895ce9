#include "tests/training/support/meshes.h"

#include "base/text.h"
#include "training/models/gpt.h"
#include "training/models/llama.h"

namespace tutti::training::testing {

std::string describe(const Grid& grid) {
  return cat("tensor ", grid.tensor, grid.sp ? " with shared rows" : "", " x context ",
             grid.context, " x data ", grid.data, " x pipeline ", grid.stages, ", ZeRO ", grid.zero,
             ", experts over ", grid.experts);
}

std::unique_ptr<Model> decoder(const std::string& kind, const MeshPlace& place,
                               const ComputeOptions& compute, double dropout) {
  if (kind == "gpt2") {
    return std::make_unique<Gpt>(GptConfig{.layers = 2,
                                           .heads = 8,
                                           .width = 32,
                                           .context = kTinyContext,
                                           .vocabulary = 257,
                                           .dropout = dropout,
                                           .compute = compute},
                                 place);
  }
  LlamaConfig config{.layers = 2,
                     .heads = 8,
                     .kv_heads = kind == "few keys" ? 2 : 4,
                     .width = 32,
                     .hidden = 50,
                     .context = kTinyContext,
                     .vocabulary = 259,
                     .dropout = dropout,
                     .compute = compute};
  if (kind == "experts") {
    config.family = LlamaFamily::qwen3moe;
    config.router = {.experts = 5, .topk = 2, .balance_loss = 0.1, .z_loss = 0.01};
    config.shared_hidden = 13;
    config.shared_gate = true;
  }
  return std::make_unique<Llama>(config, place);
}

TinyRun run_of(const std::string& kind, const Grid& grid, ComputeOptions compute, double dropout) {
  compute.sequence_parallel = grid.sp;
  TinyRun run;
  run.mesh = {.tensor = grid.tensor,
              .context = grid.context,
              .data = grid.data,
              .pipeline = grid.stages,
              .expert = kind == "experts" ? grid.experts : 1};
  run.model.context = kTinyContext;  // context length of the data
  run.other_model = [kind, compute, dropout](const MeshPlace& place) {
    return decoder(kind, place, compute, dropout);
  };
  run.replica.storage.stage = grid.zero;
  run.replica.storage.bucket_elements = 300;
  run.replica.storage.first_bucket_elements = 100;
  run.replica.clip = 0.5;
  run.batch = 8;
  run.micro_batch = 4;
  run.steps = 8;
  return run;
}

}  // namespace tutti::training::testing
