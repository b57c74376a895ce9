// Dynamic 8-bit data types: 256 values in [-1, 1] or [0, 1] with fewer digits towards 0 (Dettmers
// et al.: 8-bit optimizers via block-wise quantization, ICLR 2022). Values and rounding are bitwise
// those of bitsandbytes: create_dynamic_map() and its block-wise optimizers.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace tutti::training {

struct DynamicMap {
  std::array<float, 256> values = {};  // by code, ascending
  // Table of the codes of all floats in [-1, 1] (optimizer_loops.h: quantize).
  std::vector<uint32_t> cells;
};

// Created at the first call. Thread-safe.
const DynamicMap& signed_dynamic_map();    // -0.993 to 1, code 127 is 0
const DynamicMap& unsigned_dynamic_map();  // 0 to 1, code 0 is 0

// Returns the code of the value nearest to x in [-1, 1]. The midpoint of adjacent values is (a + b)
// / 2 in f32; a tie goes to the even code. For negative x, -0 included, a code of 0's value is
// replaced by the next lower one, so that the value is negative.
uint8_t nearest_code(const std::array<float, 256>& values, float x);

}  // namespace tutti::training
