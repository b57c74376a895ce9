// Loops that quantized_gemm.h uses: they round squares of an operand to a format in place, with the
// instructions of each instruction set. Every set gives the same bits.
#pragma once

#include <cstdint>

namespace tutti::training::kernels {

inline constexpr int64_t kTf32Block = 128;  // tf32 has no scales, so any size gives the same values
inline constexpr int64_t kFp8Block = 128;
inline constexpr int64_t kMxfp8Block = 32;
inline constexpr int64_t kNvfp4Block = 16;

// A square of values with a distance of `stride` between the starts of rows. It has at most as many
// rows and columns as a block has values.
struct Square {
  float* values = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;
  bool is_one_block = false;  // true: one scale for the whole square; false: one for each row
};

struct Nvfp4Rounding {
  float scale = 1;         // the factor s of quantized_gemm.h
  bool by_chance = false;  // true: stochastic rounding
  uint64_t seed = 0;
  uint64_t index = 0;  // index of the first value's random number
  uint64_t step = 0;   // difference of the indices of two adjacent rows' first values
};

struct OperandLoops {
  void (*tf32)(const Square& square);
  void (*fp8)(const Square& square);
  void (*mxfp8)(const Square& square);
  void (*nvfp4)(const Square& square, const Nvfp4Rounding& rounding);
  // Applies the Hadamard transform to each row's 16 values.
  void (*hadamard)(float* values, int64_t rows, int64_t stride);
  // Returns the largest magnitude among the finite values.
  float (*largest)(const float* values, int64_t count);
};

// Returns the loops of the selected instruction set (TUTTI_CPU).
const OperandLoops& operand_loops();

namespace baseline {
extern const OperandLoops kOperandLoops;
}
namespace avx2 {
extern const OperandLoops kOperandLoops;
}
namespace avx512 {
extern const OperandLoops kOperandLoops;
}

}  // namespace tutti::training::kernels
