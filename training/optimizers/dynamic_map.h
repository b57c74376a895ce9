// Dynamic 8-bit data types: 256 values in [-1, 1] or [0, 1] whose precision decreases towards 0
// (Dettmers et al.: 8-bit optimizers via block-wise quantization, ICLR 2022). Values and rounding
// equal those of bitsandbytes (create_dynamic_map() and the block-wise optimizers) bit for bit.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace tutti::training {

struct DynamicMap {
  std::array<float, 256> values = {};  // indexed by code; in ascending order
  // Table that maps all floats in [-1, 1] to codes (quantize in optimizer_loops.h).
  std::vector<uint32_t> cells;
};

// Return the maps, which the first call creates. Thread-safe.
const DynamicMap& signed_dynamic_map();    // -0.993 to 1, code 127 is 0
const DynamicMap& unsigned_dynamic_map();  // 0 to 1, code 0 is 0

// Returns the code of the value nearest to x in [-1, 1]. The midpoint of adjacent values is (a + b)
// / 2 in f32; a tie goes to the even code. For negative x (-0 included), if the nearest value is 0,
// returns the next lower code, so that the value is negative.
uint8_t nearest_code(const std::array<float, 256>& values, float x);

}  // namespace tutti::training
