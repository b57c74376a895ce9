#include "bench/pattern.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/half.h"

namespace tutti::bench {

namespace {

// Whole numbers up to here, and their sums, are exact in the type.
uint64_t exact_limit(DType dtype) {
  switch (dtype) {
    case DType::f8e5m2:
      return 8;
    case DType::f8e4m3:
      return 16;
    case DType::i8:
      return 127;
    case DType::u8:
      return 255;
    case DType::bf16:
      return 256;
    case DType::f16:
      return 2048;
    default:
      return 30000;
  }
}

uint64_t hash(uint64_t index, uint64_t rank) {
  uint64_t x = index * 0x9e3779b97f4a7c15 + rank * 0xd1b54a32d192ed03;
  x ^= x >> 29;
  x *= 0xbf58476d1ce4e5b9;
  return x >> 33;
}

template <typename T>
void put(void* data, uint64_t index, T value) {
  std::memcpy(static_cast<std::byte*>(data) + index * sizeof(T), &value, sizeof(T));
}

double combine(ReduceOp op, double a, double b) {
  const auto x = static_cast<uint64_t>(a);
  const auto y = static_cast<uint64_t>(b);
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg:
      return a + b;
    case ReduceOp::prod:
      return a * b;
    case ReduceOp::min:
      return std::min(a, b);
    case ReduceOp::max:
      return std::max(a, b);
    case ReduceOp::band:
      return static_cast<double>(x & y);
    case ReduceOp::bor:
      return static_cast<double>(x | y);
    case ReduceOp::bxor:
      return static_cast<double>(x ^ y);
  }
  return 0;
}

// Writes one period and repeats it.
template <typename Value>
void fill(DType dtype, uint64_t first, uint64_t count, void* data, Value value) {
  const uint64_t period = std::min(count, kPatternPeriod);
  for (uint64_t i = 0; i < period; ++i) store(dtype, data, i, value((first + i) % kPatternPeriod));
  auto* bytes = static_cast<std::byte*>(data);
  const uint64_t size = size_of(dtype);
  for (uint64_t done = period; done < count;) {
    const uint64_t more = std::min(done, count - done) / kPatternPeriod * kPatternPeriod;
    const uint64_t copied = more > 0 ? more : count - done;
    std::memcpy(bytes + done * size, bytes, copied * size);
    done += copied;
  }
}

}  // namespace

double pattern_value(DType dtype, ReduceOp op, int ranks, int rank, uint64_t index) {
  index %= kPatternPeriod;
  const uint64_t limit = exact_limit(dtype);
  const auto p = static_cast<uint64_t>(ranks);
  const auto r = static_cast<uint64_t>(rank);
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg: {
      // With more ranks than the type can count, only so many of them contribute.
      if (r >= limit) return 0;
      const uint64_t values = std::min<uint64_t>(limit / std::min(p, limit) + 1, 61);
      return static_cast<double>(hash(index, r) % values);
    }
    case ReduceOp::prod:
      return (index + r) % p < 3 ? 2 : 1;
    default:
      return static_cast<double>(hash(index, r) % std::min<uint64_t>(limit + 1, 97));
  }
}

double expected_value(DType dtype, ReduceOp op, int ranks, uint64_t index) {
  double result = pattern_value(dtype, op, ranks, 0, index);
  for (int rank = 1; rank < ranks; ++rank) {
    result = combine(op, result, pattern_value(dtype, op, ranks, rank, index));
  }
  if (op != ReduceOp::avg) return result;
  if (!is_float(dtype)) return std::trunc(result / ranks);
  if (dtype == DType::f64) return result / ranks;
  return static_cast<float>(result) / static_cast<float>(ranks);
}

void store(DType dtype, void* data, uint64_t index, double value) {
  switch (dtype) {
    case DType::i8:
      return put(data, index, static_cast<int8_t>(value));
    case DType::i16:
      return put(data, index, static_cast<int16_t>(value));
    case DType::i32:
      return put(data, index, static_cast<int32_t>(value));
    case DType::i64:
      return put(data, index, static_cast<int64_t>(value));
    case DType::u8:
      return put(data, index, static_cast<uint8_t>(value));
    case DType::u16:
      return put(data, index, static_cast<uint16_t>(value));
    case DType::u32:
      return put(data, index, static_cast<uint32_t>(value));
    case DType::u64:
      return put(data, index, static_cast<uint64_t>(value));
    case DType::f32:
      return put(data, index, static_cast<float>(value));
    case DType::f64:
      return put(data, index, value);
    case DType::f16:
    case DType::bf16:
      return put(data, index, from_float(dtype, static_cast<float>(value)));
    case DType::f8e4m3:
    case DType::f8e5m2:
      return put(data, index, static_cast<uint8_t>(from_float(dtype, static_cast<float>(value))));
  }
}

void fill_pattern(DType dtype, ReduceOp op, int ranks, int rank, uint64_t first, uint64_t count,
                  void* data) {
  fill(dtype, first, count, data,
       [&](uint64_t index) { return pattern_value(dtype, op, ranks, rank, index); });
}

void fill_expected(DType dtype, ReduceOp op, int ranks, uint64_t first, uint64_t count,
                   void* data) {
  fill(dtype, first, count, data,
       [&](uint64_t index) { return expected_value(dtype, op, ranks, index); });
}

uint64_t count_wrong(DType dtype, const void* got, const void* expected, uint64_t count) {
  const uint64_t size = size_of(dtype);
  if (std::memcmp(got, expected, count * size) == 0) return 0;
  uint64_t wrong = 0;
  const auto* a = static_cast<const std::byte*>(got);
  const auto* b = static_cast<const std::byte*>(expected);
  for (uint64_t i = 0; i < count; ++i) wrong += std::memcmp(a + i * size, b + i * size, size) != 0;
  return wrong;
}

}  // namespace tutti::bench
