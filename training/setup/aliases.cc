#include "training/setup/aliases.h"

#include <string>
#include <utility>
#include <vector>

namespace tutti::training {

void add_aliases(CommandLine& line) {
  const std::vector<std::pair<const char*, std::vector<std::string>>> aliases = {
      {"--learning-rate", {"--lr"}},
      {"--lr-decay-style", {"--lr-schedule"}},
      {"--lr-warmup-iters", {"--warmup"}},
      {"--warmup-steps", {"--warmup"}},
      {"--batch-size", {"--batch"}},
      {"--global-batch-size", {"--batch"}},
      {"--micro-batch-size", {"--micro-batch"}},
      {"--gradient-accumulation-steps", {"--micro-batches"}},
      {"--train-iters", {"--steps"}},
      {"--max-steps", {"--steps"}},
      {"--seq-length", {"--context"}},
      {"--max-position-embeddings", {"--max-context"}},
      {"--hidden-size", {"--width"}},
      {"--hidden", {"--ffn-hidden-size"}},                             // Tutti's name until 0.1
      {"--shard-files", {"--offload-dir", "--offload", "optimizer"}},  // Tutti's name until 0.1
      {"--num-layers", {"--layers"}},
      {"--num-attention-heads", {"--heads"}},
      {"--num-query-groups", {"--kv-heads"}},
      {"--kv-channels", {"--head-size"}},
      {"--vocab-size", {"--vocabulary"}},
      {"--rotary-base", {"--rope-base"}},
      {"--clip-grad", {"--clip"}},
      {"--adam-beta1", {"--beta1"}},
      {"--adam-beta2", {"--beta2"}},
      {"--adam-eps", {"--eps"}},
      {"--data-path", {"--data"}},
      {"--data-parallel-size", {"--dp"}},
      {"--pipeline-model-parallel-size", {"--pp"}},
      {"--tensor-model-parallel-size", {"--tp"}},
      {"--context-parallel-size", {"--cp"}},
      {"--log-interval", {"--log-every"}},
      {"--eval-interval", {"--validate-every"}},
      {"--save", {"--checkpoint"}},
      {"--save-interval", {"--checkpoint-every"}},
      {"--load", {"--checkpoint", "--resume"}},
  };
  for (const auto& [other, own] : aliases) line.add_alias(other, own);
}

}  // namespace tutti::training
