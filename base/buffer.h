// What a collective works on: {pointer, count, dtype, memory space}, and the stream it is ordered
// by.
//
// A Buffer does not own its memory. The caller keeps it alive and leaves it alone from the call
// until the call's Work is done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"

namespace tutti {

enum class MemorySpace : uint8_t { host = 0, device = 1 };

// A CUDA stream (cudaStream_t) for device buffers; null for host memory.
struct Stream {
  void* handle = nullptr;
};

template <typename Pointer>
struct BasicBuffer {
  Pointer data = nullptr;
  uint64_t count = 0;  // elements, not bytes
  DType dtype = DType::u8;
  MemorySpace space = MemorySpace::host;

  uint64_t bytes() const { return count * size_of(dtype); }
};

using Buffer = BasicBuffer<void*>;
using ConstBuffer = BasicBuffer<const void*>;

inline ConstBuffer as_const(const Buffer& buffer) {
  return {buffer.data, buffer.count, buffer.dtype, buffer.space};
}

template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<int8_t> {
  static constexpr DType value = DType::i8;
};
template <>
struct DTypeOf<int16_t> {
  static constexpr DType value = DType::i16;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::i32;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = DType::i64;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = DType::u8;
};
template <>
struct DTypeOf<uint16_t> {
  static constexpr DType value = DType::u16;
};
template <>
struct DTypeOf<uint32_t> {
  static constexpr DType value = DType::u32;
};
template <>
struct DTypeOf<uint64_t> {
  static constexpr DType value = DType::u64;
};
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::f64;
};

template <>
struct DTypeOf<ValueIndex<float, int32_t>> {
  static constexpr DType value = DType::f32_i32;
};
template <>
struct DTypeOf<ValueIndex<double, int64_t>> {
  static constexpr DType value = DType::f64_i64;
};
template <>
struct DTypeOf<ValueIndex<int32_t, int32_t>> {
  static constexpr DType value = DType::i32_i32;
};
template <>
struct DTypeOf<ValueIndex<int64_t, int64_t>> {
  static constexpr DType value = DType::i64_i64;
};

template <typename T>
Buffer buffer_of(std::span<T> values) {
  return {values.data(), values.size(), DTypeOf<T>::value};
}

template <typename T>
ConstBuffer const_buffer_of(std::span<const T> values) {
  return {values.data(), values.size(), DTypeOf<T>::value};
}

}  // namespace tutti
