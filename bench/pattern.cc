#include "bench/pattern.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/half.h"

namespace tutti::bench {

namespace {

// The value of an element and, for pairs, its index.
struct Number {
  double value = 0;
  int64_t index = 0;
};

// Returns the largest n such that all whole numbers up to n are exact in the type.
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

double pattern_value(DType dtype, ReduceOp op, int ranks, int rank, uint64_t index) {
  const auto p = static_cast<uint64_t>(ranks);
  const auto r = static_cast<uint64_t>(rank);
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg:
    case ReduceOp::premul_sum: {
      // If there are more ranks than the type can count, only `limit` of them contribute.
      const uint64_t limit = exact_limit(dtype) / (op == ReduceOp::premul_sum ? 2 : 1);
      if (r >= limit) return 0;
      const uint64_t values = std::min<uint64_t>(limit / std::min(p, limit) + 1, 61);
      return static_cast<double>(hash(index, r) % values);
    }
    case ReduceOp::prod:
      return (index + r) % p < 3 ? 2 : 1;
    case ReduceOp::minloc:
    case ReduceOp::maxloc:
      return static_cast<double>(hash(index, r) % 5);
    default:
      return static_cast<double>(hash(index, r) % std::min<uint64_t>(exact_limit(dtype) + 1, 97));
  }
}

// Returns the value of an element. The indices of an element's pairs differ between ranks and are
// in no particular order.
Number pattern_number(DType dtype, ReduceOp op, int ranks, int rank, uint64_t index) {
  const auto r = static_cast<uint64_t>(rank);
  return {.value = pattern_value(dtype, op, ranks, rank, index),
          .index = static_cast<int64_t>(hash(r, index) % 1000 * ranks + r)};
}

Number combine(ReduceOp op, Number a, Number b) {
  const auto x = static_cast<uint64_t>(a.value);
  const auto y = static_cast<uint64_t>(b.value);
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg:
    case ReduceOp::premul_sum:
      return {a.value + b.value};
    case ReduceOp::prod:
      return {a.value * b.value};
    case ReduceOp::min:
      return {std::min(a.value, b.value)};
    case ReduceOp::max:
      return {std::max(a.value, b.value)};
    case ReduceOp::band:
      return {static_cast<double>(x & y)};
    case ReduceOp::bor:
      return {static_cast<double>(x | y)};
    case ReduceOp::bxor:
      return {static_cast<double>(x ^ y)};
    case ReduceOp::minloc:
      return a.value < b.value || (a.value == b.value && a.index < b.index) ? a : b;
    case ReduceOp::maxloc:
      return a.value > b.value || (a.value == b.value && a.index < b.index) ? a : b;
    case ReduceOp::user:
      break;  // reduced by compose()
  }
  return {};
}

Number combined_number(DType dtype, ReduceOp op, int ranks, int combined, uint64_t index) {
  const auto factor = [&](int rank) {
    return op == ReduceOp::premul_sum ? pattern_factor(rank) : 1;
  };
  Number result = pattern_number(dtype, op, ranks, 0, index);
  result.value *= factor(0);
  for (int rank = 1; rank < combined; ++rank) {
    Number other = pattern_number(dtype, op, ranks, rank, index);
    other.value *= factor(rank);
    result = combine(op, result, other);
  }
  if (op != ReduceOp::avg) return result;
  if (!is_float(dtype)) return {std::trunc(result.value / combined)};
  if (dtype == DType::f64) return {result.value / combined};
  return {static_cast<float>(result.value) / static_cast<float>(combined)};
}

template <typename T>
void put(void* data, uint64_t offset, T value) {
  std::memcpy(static_cast<std::byte*>(data) + offset, &value, sizeof(T));
}

void store_number(DType dtype, void* data, uint64_t index, const Number& number) {
  store(dtype, data, index, number.value);
  if (!is_pair(dtype)) return;
  const uint64_t size = size_of(dtype);
  const uint64_t offset = index * size + size / 2;
  if (size == 8) return put(data, offset, static_cast<int32_t>(number.index));
  put(data, offset, number.index);
}

void fill_bits(uint64_t size, int rank, uint64_t first, uint64_t count, void* data) {
  for (uint64_t i = 0; i < count; ++i) {
    for (uint64_t byte = 0; byte < size; byte += 8) {
      const uint64_t bits = hash(first + i, 2 * rank + byte / 8);
      std::memcpy(static_cast<std::byte*>(data) + i * size + byte, &bits,
                  std::min<uint64_t>(size, 8));
    }
  }
}

void fill_composed(DType dtype, int combined, uint64_t first, uint64_t count, void* data) {
  const uint64_t size = size_of(dtype);
  std::vector<std::byte> next(count * size);
  fill_bits(size, 0, first, count, data);
  for (int rank = 1; rank < combined; ++rank) {
    fill_bits(size, rank, first, count, next.data());
    compose(data, data, next.data(), count, dtype);
  }
}

// Composes maps stored in elements of 2 * sizeof(Half) bytes, or of one byte with two 4-bit halves.
template <typename Half, int kBits>
void compose_all(void* dst, const void* a, const void* b, uint64_t count) {
  struct Map {
    uint64_t m;
    uint64_t b;
  };
  constexpr uint64_t kMask = kBits == 64 ? ~uint64_t{0} : (uint64_t{1} << (kBits % 64)) - 1;
  constexpr uint64_t kSize = kBits == 4 ? 1 : 2 * sizeof(Half);
  const auto get = [](const void* from, uint64_t i) -> Map {
    Half halves[2] = {};
    std::memcpy(halves, static_cast<const std::byte*>(from) + i * kSize, kSize);
    if constexpr (kBits == 4) return {halves[0] & kMask, static_cast<uint64_t>(halves[0]) >> 4};
    return {halves[0], halves[1]};
  };
  for (uint64_t i = 0; i < count; ++i) {
    const Map x = get(a, i);
    const Map y = get(b, i);
    const Map z = {x.m * y.m & kMask, (x.m * y.b + x.b) & kMask};
    Half halves[2] = {static_cast<Half>(z.m), static_cast<Half>(z.b)};
    if constexpr (kBits == 4) halves[0] = static_cast<Half>(z.m | z.b << 4);
    std::memcpy(static_cast<std::byte*>(dst) + i * kSize, halves, kSize);
  }
}

}  // namespace

uint64_t hash(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9e3779b97f4a7c15 + b * 0xd1b54a32d192ed03;
  x ^= x >> 29;
  x *= 0xbf58476d1ce4e5b9;
  return x ^ x >> 32;
}

void fill_periodically(uint64_t size, uint64_t first, uint64_t count, void* data,
                       const WriteElements& write) {
  auto* bytes = static_cast<std::byte*>(data);
  const uint64_t start = first % kPatternPeriod;
  const uint64_t to_end = std::min(count, kPatternPeriod - start);
  const uint64_t period = std::min(count, kPatternPeriod);
  if (count == 0) return;
  write(start, to_end, bytes);
  if (period > to_end) write(0, period - to_end, bytes + to_end * size);
  for (uint64_t done = period; done < count;) {  // in multiples of a period
    const uint64_t copied = std::min(done, count - done);
    std::memcpy(bytes + done * size, bytes, copied * size);
    done += copied;
  }
}

double pattern_factor(int rank) { return rank % 2 == 0 ? 2 : 1; }

void compose(void* dst, const void* a, const void* b, uint64_t count, DType dtype) {
  switch (size_of(dtype)) {
    case 1:
      return compose_all<uint8_t, 4>(dst, a, b, count);
    case 2:
      return compose_all<uint8_t, 8>(dst, a, b, count);
    case 4:
      return compose_all<uint16_t, 16>(dst, a, b, count);
    case 8:
      return compose_all<uint32_t, 32>(dst, a, b, count);
    default:
      return compose_all<uint64_t, 64>(dst, a, b, count);
  }
}

void store(DType dtype, void* data, uint64_t index, double value) {
  const auto put_as = [&]<typename T>(T converted) {
    put(data, index * size_of(dtype), converted);
  };
  switch (dtype) {
    case DType::i8:
      return put_as(static_cast<int8_t>(value));
    case DType::i16:
      return put_as(static_cast<int16_t>(value));
    case DType::i32:
    case DType::i32_i32:
      return put_as(static_cast<int32_t>(value));
    case DType::i64:
    case DType::i64_i64:
      return put_as(static_cast<int64_t>(value));
    case DType::u8:
      return put_as(static_cast<uint8_t>(value));
    case DType::u16:
      return put_as(static_cast<uint16_t>(value));
    case DType::u32:
      return put_as(static_cast<uint32_t>(value));
    case DType::u64:
      return put_as(static_cast<uint64_t>(value));
    case DType::f32:
    case DType::f32_i32:
      return put_as(static_cast<float>(value));
    case DType::f64:
    case DType::f64_i64:
      return put_as(value);
    case DType::f16:
    case DType::bf16:
      return put_as(from_float(dtype, static_cast<float>(value)));
    case DType::f8e4m3:
    case DType::f8e5m2:
      return put_as(static_cast<uint8_t>(from_float(dtype, static_cast<float>(value))));
  }
}

void fill_pattern(DType dtype, ReduceOp op, int ranks, int rank, uint64_t first, uint64_t count,
                  void* data) {
  const uint64_t size = size_of(dtype);
  fill_periodically(size, first, count, data, [&](uint64_t index, uint64_t n, void* to) {
    if (op == ReduceOp::user) return fill_bits(size, rank, index, n, to);
    for (uint64_t i = 0; i < n; ++i) {
      store_number(dtype, to, i, pattern_number(dtype, op, ranks, rank, index + i));
    }
  });
}

void fill_combined(DType dtype, ReduceOp op, int ranks, int combined, uint64_t first,
                   uint64_t count, void* data) {
  const uint64_t size = size_of(dtype);
  fill_periodically(size, first, count, data, [&](uint64_t index, uint64_t n, void* to) {
    if (op == ReduceOp::user) return fill_composed(dtype, combined, index, n, to);
    for (uint64_t i = 0; i < n; ++i) {
      store_number(dtype, to, i, combined_number(dtype, op, ranks, combined, index + i));
    }
  });
}

uint64_t count_wrong(DType dtype, const void* got, const void* expected, uint64_t count) {
  const uint64_t size = size_of(dtype);
  if (count == 0 || std::memcmp(got, expected, count * size) == 0) return 0;
  uint64_t wrong = 0;
  const auto* a = static_cast<const std::byte*>(got);
  const auto* b = static_cast<const std::byte*>(expected);
  for (uint64_t i = 0; i < count; ++i) wrong += std::memcmp(a + i * size, b + i * size, size) != 0;
  return wrong;
}

}  // namespace tutti::bench
