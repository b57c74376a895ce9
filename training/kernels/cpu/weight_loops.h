// The loops behind quantized_weights.h, as each instruction set offers them: rows of whole blocks.
// Every set gives the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::training::kernels {

inline constexpr int64_t kLargestWeightBlock = 64;

struct WeightLoops {
  int64_t block = 0;  // values
  int64_t bytes = 0;  // of a block
  void (*encode)(const float* values, std::byte* blocks, int64_t count);
  void (*decode)(const std::byte* blocks, float* values, int64_t count);
};

inline constexpr int kWeightFormats = 3;  // in the order of WeightFormat

// Those of the selected instruction set (TUTTI_CPU), by format.
const WeightLoops& weight_loops(int format);

namespace baseline {
extern const WeightLoops kWeightLoops[kWeightFormats];
}
namespace avx2 {
extern const WeightLoops kWeightLoops[kWeightFormats];
}
namespace avx512 {
extern const WeightLoops kWeightLoops[kWeightFormats];
}

}  // namespace tutti::training::kernels
