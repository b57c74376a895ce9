// How a model's training is cut over processors: what the planner prices and ranks.
#pragma once

#include <cstdint>
#include <string>

namespace tutti::training::planner {

// What is computed again in the backward pass in place of being kept.
enum class Recompute : uint8_t { none, selective, full };
enum class Precision : uint8_t { half, eight };  // of products: 16 bits (f16, bf16), or 8

std::string name(Recompute recompute);

struct Layout {
  int data = 1;
  int tensor = 1;
  int stages = 1;
  int context = 1;
  // Ranks among whom experts are dealt out, and those that share each: of tensor x data x context.
  int expert = 1;
  int expert_tensor = 1;
  int virtual_stages = 1;  // chunks of a stage, interleaved
  int zero = 1;
  bool sequence_parallel = false;  // tensor ranks share the rows between their products
  int64_t micro_batch = 1;
  Recompute recompute = Recompute::none;

  int ranks() const { return data * tensor * stages * context; }
  bool operator==(const Layout&) const = default;
};

// "dp 64, tp 8, pp 16, vp 2, zero 1, sp, micro-batch 1, recompute selective"; of axes of one rank
// nothing.
std::string to_text(const Layout& layout);

}  // namespace tutti::training::planner
