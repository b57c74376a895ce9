// Conversions between floats and whole blocks of base/block_format.h, in plain loops that the
// compiler vectorises. They are compiled once per instruction set under the rules of convert.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/kernels/convert.h"
#include "base/kernels/kernels.h"
#include "base/kernels/mx.h"

namespace tutti::kernels {
namespace {

constexpr size_t kInt8Values = 256;
constexpr size_t kSignValues = 256;

// Loads the floats of the block with index `block` in an array, which need not be aligned.
template <size_t kCount>
inline void load_block(const void* values, size_t block, float* to) {
  constexpr size_t kBytes = kCount * sizeof(float);
  __builtin_memcpy(to, static_cast<const char*>(values) + block * kBytes, kBytes);
}
template <size_t kCount>
inline void store_block(void* values, size_t block, const float* from) {
  constexpr size_t kBytes = kCount * sizeof(float);
  __builtin_memcpy(static_cast<char*>(values) + block * kBytes, from, kBytes);
}

void encode_mx8(void* blocks, const void* values, size_t count) {
  constexpr size_t kBytes = 1 + kMxValues;
  auto* to = static_cast<uint8_t*>(blocks);
  for (size_t block = 0; block < count; ++block, to += kBytes) {
    float at[kMxValues];
    load_block<kMxValues>(values, block, at);
    to[0] = scale_down(at, 8, 448);
    for (size_t i = 0; i < kMxValues; ++i) to[1 + i] = F8E4M3::narrow(at[i]);
  }
}

void decode_mx8(void* values, const void* blocks, size_t count) {
  constexpr size_t kBytes = 1 + kMxValues;
  const auto* from = static_cast<const uint8_t*>(blocks);
  for (size_t block = 0; block < count; ++block, from += kBytes) {
    float at[kMxValues];
    for (size_t i = 0; i < kMxValues; ++i) at[i] = F8E4M3::widen(from[1 + i]);
    scale_up(at, from[0]);
    store_block<kMxValues>(values, block, at);
  }
}

void encode_mx4(void* blocks, const void* values, size_t count) {
  constexpr size_t kBytes = 1 + kMxValues / 2;
  auto* to = static_cast<uint8_t*>(blocks);
  for (size_t block = 0; block < count; ++block, to += kBytes) {
    float at[kMxValues];
    load_block<kMxValues>(values, block, at);
    to[0] = scale_down(at, 2, 6);
    uint32_t codes[kMxValues];
    for (size_t i = 0; i < kMxValues; ++i) codes[i] = e2m1(at[i]);
    for (size_t i = 0; i < kMxValues / 2; ++i) {
      to[1 + i] = static_cast<uint8_t>(codes[2 * i] | codes[2 * i + 1] << 4);
    }
  }
}

void decode_mx4(void* values, const void* blocks, size_t count) {
  constexpr size_t kBytes = 1 + kMxValues / 2;
  const auto* from = static_cast<const uint8_t*>(blocks);
  for (size_t block = 0; block < count; ++block, from += kBytes) {
    float at[kMxValues];
    for (size_t i = 0; i < kMxValues / 2; ++i) {
      at[2 * i] = value_of_e2m1(from[1 + i] & 15U);
      at[2 * i + 1] = value_of_e2m1(uint32_t{from[1 + i]} >> 4);
    }
    scale_up(at, from[0]);
    store_block<kMxValues>(values, block, at);
  }
}

void encode_int8(void* blocks, const void* values, size_t count) {
  constexpr size_t kBytes = sizeof(float) + kInt8Values;
  constexpr float kMost = 127;
  // 1.5 * 2^23: adding it rounds to an integer, ties to even.
  constexpr float kRound = 12582912.0f;
  auto* to = static_cast<uint8_t*>(blocks);
  for (size_t block = 0; block < count; ++block, to += kBytes) {
    float at[kInt8Values];
    load_block<kInt8Values>(values, block, at);
    const uint32_t largest = largest_bits<kInt8Values>(at);
    const float scale =
        largest >= kInfinityBits ? __builtin_nanf("") : __builtin_bit_cast(float, largest) / kMost;
    __builtin_memcpy(to, &scale, sizeof(scale));
    const bool is_zero = !(scale > 0);
    for (size_t i = 0; i < kInt8Values; ++i) {
      const float x = is_zero ? 0.0f : clamped(at[i] / scale, kMost);
      const int32_t whole = static_cast<int32_t>(x + kRound - kRound);
      to[sizeof(scale) + i] = static_cast<uint8_t>(static_cast<int8_t>(whole));
    }
  }
}

void decode_int8(void* values, const void* blocks, size_t count) {
  constexpr size_t kBytes = sizeof(float) + kInt8Values;
  const auto* from = static_cast<const uint8_t*>(blocks);
  for (size_t block = 0; block < count; ++block, from += kBytes) {
    float scale = 0;
    __builtin_memcpy(&scale, from, sizeof(scale));
    float at[kInt8Values];
    for (size_t i = 0; i < kInt8Values; ++i) {
      at[i] = scale * static_cast<float>(static_cast<int8_t>(from[sizeof(scale) + i]));
    }
    store_block<kInt8Values>(values, block, at);
  }
}

constexpr uint32_t kSignBit = 1U << 31;

inline size_t without_padding(const float* values) {
  size_t count = kSignValues;
  while (count > 0 && __builtin_bit_cast(uint32_t, values[count - 1]) == kPaddingBits) --count;
  return count;
}

void encode_sign(void* blocks, const void* values, size_t count) {
  constexpr size_t kBytes = sizeof(float) + kSignValues / 8;
  auto* to = static_cast<uint8_t*>(blocks);
  for (size_t block = 0; block < count; ++block, to += kBytes) {
    float at[kSignValues];
    load_block<kSignValues>(values, block, at);
    const size_t there = without_padding(at);
    double sum = 0;
    for (size_t i = 0; i < there; ++i) sum += __builtin_fabs(static_cast<double>(at[i]));
    const float mean =
        there == 0 ? 0 : __builtin_fabsf(static_cast<float>(sum / static_cast<double>(there)));
    const float scale = there < kSignValues ? -mean : mean;
    __builtin_memcpy(to, &scale, sizeof(scale));
    uint8_t* const signs = to + sizeof(scale);
    // The code is branch-free, because the processor could not predict random signs.
    for (size_t first = 0; first < kSignValues; first += 8) {
      uint32_t eight = 0;
      for (size_t i = 0; i < 8; ++i) eight |= uint32_t{at[first + i] < 0} << i;
      signs[first / 8] = static_cast<uint8_t>(eight);
    }
    if (there < kSignValues) signs[there / 8] |= static_cast<uint8_t>(1U << (there % 8));
  }
}

void decode_sign(void* values, const void* blocks, size_t count) {
  constexpr size_t kBytes = sizeof(float) + kSignValues / 8;
  const auto* from = static_cast<const uint8_t*>(blocks);
  for (size_t block = 0; block < count; ++block, from += kBytes) {
    uint32_t scale = 0;
    __builtin_memcpy(&scale, from, sizeof(scale));
    const uint8_t* const signs = from + sizeof(scale);
    const auto bit = [signs](size_t i) { return uint32_t{signs[i / 8]} >> (i % 8) & 1U; };
    size_t there = kSignValues;
    if ((scale & kSignBit) != 0) {
      while (there > 0 && bit(there - 1) == 0) --there;
      if (there > 0) --there;  // excludes the marker bit behind the last sign
    }
    float at[kSignValues];
    for (size_t i = 0; i < kSignValues; ++i) {
      const uint32_t value = (scale & ~kSignBit) | bit(i) << 31;
      at[i] = __builtin_bit_cast(float, i < there ? value : kPaddingBits);
    }
    store_block<kSignValues>(values, block, at);
  }
}

}  // namespace
}  // namespace tutti::kernels
