// The operand of a collective: {pointer, count, dtype, memory space}, and the stream that orders
// it.
//
// A Buffer does not own its memory. The caller must keep the memory alive and untouched from the
// call until the call's Work has completed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <type_traits>
#include <utility>

#include "base/dtype.h"

namespace tutti {

enum class MemorySpace : uint8_t { host = 0, device = 1 };

// A CUDA stream (cudaStream_t) for device buffers; null for host memory.
struct Stream {
  void* handle = nullptr;
};

// Maps a C++ arithmetic type to its dtype: DTypeOf<float>::value is DType::f32.
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

namespace internal {
// The element type of a vector, an array or a span, such as float or const float.
template <typename Values>
using ElementOf = std::remove_reference_t<decltype(*std::data(std::declval<Values&>()))>;
// True for ranges whose elements outlive the expression that names them. It is false for a
// temporary vector.
template <typename Values>
inline constexpr bool kStays = std::is_lvalue_reference_v<Values> ||
                               std::is_trivially_destructible_v<std::remove_cvref_t<Values>>;
}  // namespace internal

template <typename Pointer>
struct BasicBuffer {
  Pointer data = nullptr;
  uint64_t count = 0;  // elements, not bytes
  DType dtype = DType::u8;
  MemorySpace space = MemorySpace::host;

  BasicBuffer() = default;
  BasicBuffer(Pointer data, uint64_t count, DType dtype, MemorySpace space = MemorySpace::host)
      : data(data), count(count), dtype(dtype), space(space) {}
  // Refers to the elements of a vector, an array or a span in host memory. Elements that are const
  // need a ConstBuffer.
  template <typename Values, typename T = internal::ElementOf<Values>>
  requires(std::is_convertible_v<T*, Pointer>&& internal::kStays<Values> &&
           sizeof(DTypeOf<std::remove_const_t<T>>) > 0)
      BasicBuffer(Values&& values)  // NOLINT(google-explicit-constructor): that is its use
      : data(std::data(values)),
        count(std::size(values)),
        dtype(DTypeOf<std::remove_const_t<T>>::value) {}
  // Converts to a read-only buffer.
  operator BasicBuffer<const void*>() const  // NOLINT(google-explicit-constructor)
      requires(std::is_same_v<Pointer, void*>) {
    return {data, count, dtype, space};
  }

  uint64_t bytes() const { return count * size_of(dtype); }
};

using Buffer = BasicBuffer<void*>;
using ConstBuffer = BasicBuffer<const void*>;

inline ConstBuffer as_const(const Buffer& buffer) { return buffer; }

template <typename T>
Buffer buffer_of(std::span<T> values) {
  return {values.data(), values.size(), DTypeOf<T>::value};
}

template <typename T>
ConstBuffer const_buffer_of(std::span<const T> values) {
  return {values.data(), values.size(), DTypeOf<T>::value};
}

}  // namespace tutti
