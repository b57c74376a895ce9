// The dynamic 8-bit data types: 256 values in [-1, 1] or [0, 1], whose digits grow fewer towards 0
// (Dettmers et al.: 8-bit optimizers via block-wise quantization, ICLR 2022). The values and the
// rounding have the bits of bitsandbytes: create_dynamic_map() and its block-wise optimizers.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace tutti::training {

struct DynamicMap {
  std::array<float, 256> values = {};  // by code, ascending
  // The codes of all floats in [-1, 1] as a table (optimizer_loops.h: quantize).
  std::vector<uint32_t> cells;
};

// Made at the first call. Safe from any thread.
const DynamicMap& signed_dynamic_map();    // -0.993 to 1, code 127 is 0
const DynamicMap& unsigned_dynamic_map();  // 0 to 1, code 0 is 0

// The code of the value nearest to x, which is in [-1, 1]: above the midpoint of two neighbours,
// (a + b) / 2 in f32, the upper one, and at the midpoint the one with the even code. A negative x,
// -0 too, has a negative value: the code of 0 becomes the one below it.
uint8_t nearest_code(const std::array<float, 256>& values, float x);

}  // namespace tutti::training
