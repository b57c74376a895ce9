// Loops that quantized_weights.h uses, with the instructions of each instruction set. They convert
// `count` whole blocks. Every set gives the same bits.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tutti::training::kernels {

inline constexpr int64_t kLargestWeightBlock = 64;

struct WeightLoops {
  int64_t block = 0;  // values per block
  int64_t bytes = 0;  // bytes per block
  void (*encode)(const float* values, std::byte* blocks, int64_t count);
  void (*decode)(const std::byte* blocks, float* values, int64_t count);
};

inline constexpr int kWeightFormats = 3;  // number of formats, in the order of WeightFormat

// Returns the loops of a format for the selected instruction set (TUTTI_CPU).
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
