// Storage formats of an optimizer's state of a parameter.
#pragma once

#include <cstdint>

namespace tutti::training {

// blockwise8: an 8-bit code per element (dynamic_map.h), and per kStateBlock elements an f32 scale,
// the largest absolute value, by which the codes' values are multiplied.
enum class StateFormat { f32, blockwise8 };

inline constexpr int64_t kStateBlock = 256;

constexpr int64_t state_blocks(int64_t count) { return (count + kStateBlock - 1) / kStateBlock; }

// Memory of one state of `count` elements, in floats.
constexpr int64_t state_floats(StateFormat format, int64_t count) {
  return format == StateFormat::f32 ? count : (count + 3) / 4 + state_blocks(count);
}

// View of a state of `count` elements in blockwise8: the codes come first.
struct BlockwiseState {
  BlockwiseState(float* memory, int64_t count)
      : codes(reinterpret_cast<uint8_t*>(memory)), scales(memory + (count + 3) / 4) {}

  uint8_t* codes;  // `count`
  float* scales;   // state_blocks(count)
};

}  // namespace tutti::training
