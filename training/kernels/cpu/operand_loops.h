// The loops behind quantized_gemm.h: they round squares of an operand to a format, in place, as
// each instruction set offers them. Every set gives the same bits.
#pragma once

#include <cstdint>

namespace tutti::training::kernels {

inline constexpr int64_t kTf32Block = 128;  // no scale: any size gives the same values
inline constexpr int64_t kFp8Block = 128;
inline constexpr int64_t kMxfp8Block = 32;
inline constexpr int64_t kNvfp4Block = 16;

// Values whose rows lie `stride` apart. At most as many rows and columns as a block has values.
struct Square {
  float* values = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;
  bool is_one_block = false;  // one scale for all of it, in place of one for each row
};

struct Nvfp4Rounding {
  float scale = 1;  // s of quantized_gemm.h
  bool by_chance = false;
  uint64_t seed = 0;
  uint64_t index = 0;  // of the first value
  uint64_t step = 0;   // from a row's first value to the next row's
};

struct OperandLoops {
  void (*tf32)(const Square& square);
  void (*fp8)(const Square& square);
  void (*mxfp8)(const Square& square);
  void (*nvfp4)(const Square& square, const Nvfp4Rounding& rounding);
  // Transforms each row's 16 values.
  void (*hadamard)(float* values, int64_t rows, int64_t stride);
  // The largest magnitude of what is finite.
  float (*largest)(const float* values, int64_t count);
};

// For the selected instruction set (TUTTI_CPU).
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
