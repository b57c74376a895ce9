// A layout: how a model's training is distributed over processors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::training::planner {

// The activations that the backward pass recomputes.
enum class Recompute : uint8_t { none, selective, full };
// Precision of products: 16 bits (f16, bf16), 8 bits, or 32 bits (on hosts without GPUs).
enum class Precision : uint8_t { half, eight, single };

std::string name(Recompute recompute);

struct Layout {
  int data = 1;
  int tensor = 1;
  int stages = 1;
  int context = 1;
  // `expert`: number of ranks over which experts are distributed; `expert_tensor`: number of ranks
  // that share each expert. Their product divides tensor x data x context.
  int expert = 1;
  int expert_tensor = 1;
  int virtual_stages = 1;  // number of chunks per stage, interleaved
  int zero = 1;
  bool sequence_parallel =
      false;  // true: between products, each tensor-parallel rank has some of the rows
  int64_t micro_batch = 1;
  Recompute recompute = Recompute::none;
  std::vector<int> cut;  // first unit of each chunk of a pipeline; empty: layers are divided evenly

  int ranks() const { return data * tensor * stages * context; }
  bool operator==(const Layout&) const = default;
};

// Returns the layout as text: "dp 64, tp 8, pp 16, vp 2, zero 1, sp, micro-batch 1, recompute
// selective". Skips axes of one rank.
std::string to_text(const Layout& layout);
// Returns the layout as options of `tutti train`: {"--dp=2", "--sp", "--zero=1",
// "--micro-batch=4"}.
std::vector<std::string> train_options(const Layout& layout);

}  // namespace tutti::training::planner
