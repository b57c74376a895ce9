// Storage formats of an optimizer's states.
#pragma once

#include <cstdint>

namespace tutti::training {

// f32: one float per element. blockwise8: an 8-bit code per element (dynamic_map.h), and an f32
// scale per block of kStateBlock elements, which is the largest absolute value in the block. An
// element is the value of its code times the scale.
enum class StateFormat { f32, blockwise8 };

inline constexpr int64_t kStateBlock = 256;

constexpr int64_t state_blocks(int64_t count) { return (count + kStateBlock - 1) / kStateBlock; }

// Returns the memory of one state of `count` elements, in floats.
constexpr int64_t state_floats(StateFormat format, int64_t count) {
  return format == StateFormat::f32 ? count : (count + 3) / 4 + state_blocks(count);
}

// A view of a state of `count` elements in blockwise8: the codes, then the scales.
struct BlockwiseState {
  BlockwiseState(float* memory, int64_t count)
      : codes(reinterpret_cast<uint8_t*>(memory)), scales(memory + (count + 3) / 4) {}

  uint8_t* codes;  // `count` codes
  float* scales;   // state_blocks(count) scales
};

}  // namespace tutti::training
