#include "bench/rounding.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/half.h"
#include "base/reduce.h"
#include "bench/pattern.h"

namespace tutti::bench {

namespace {

// Parameters of a floating-point type.
struct Format {
  int digits;    // number of digits of the significand
  int smallest;  // smallest exponent of normal numbers in the data
  int largest;
  int tiniest;  // exponent of the smallest subnormal number
};

Format format_of(DType dtype) {
  switch (dtype) {
    case DType::f16:
      return {11, -14, 15, -24};
    case DType::bf16:
      return {8, -30, 40, -133};
    case DType::f8e4m3:
      return {4, -6, 7, -9};
    case DType::f8e5m2:
      return {3, -14, 15, -16};
    case DType::f64:
      return {53, -60, 80, -1074};
    default:
      return {24, -30, 40, -149};
  }
}

double fraction(uint64_t bits) { return std::ldexp(static_cast<double>(bits >> 11), -53); }

// Returns an input value; sums stay finite and products stay near 1.
double rounding_value(DType dtype, ReduceOp op, int ranks, int rank, uint64_t index) {
  const uint64_t bits = hash(hash(index, rank), 1);
  const double sign = hash(bits, 2) % 2 == 0 ? 1 : -1;
  const double mantissa = fraction(hash(bits, 3));
  if (op == ReduceOp::prod) return sign * (1 + mantissa / ranks);
  const Format format = format_of(dtype);
  const auto p = static_cast<uint64_t>(ranks);
  const int largest =
      std::max(format.smallest, format.largest - static_cast<int>(std::bit_width(p)) - 3);
  // At every other index the two largest numbers cancel, so that the numbers added to one of them
  // before are partly lost to rounding.
  const uint64_t choice = hash(index, ranks);
  const uint64_t one = choice % p;
  const uint64_t other = (one + 1 + (choice >> 32) % (p > 1 ? p - 1 : 1)) % p;
  const auto r = static_cast<uint64_t>(rank);
  if (p >= 3 && index % 2 == 0 && (r == one || r == other)) {
    return std::ldexp(r == one ? 1.5 : -1.5, largest);
  }
  const uint64_t binades = largest - format.smallest + 1;
  const int exponent = format.smallest + static_cast<int>(hash(bits, 4) % binades);
  return sign * std::ldexp(1 + mantissa, exponent);
}

bool has_float(DType dtype) {
  return is_float(dtype) || dtype == DType::f32_i32 || dtype == DType::f64_i64;
}

void write_rounding(DType dtype, ReduceOp op, int ranks, int rank, uint64_t first, uint64_t count,
                    void* data) {
  // arbitrary bits, which the loop below replaces for types with floats
  fill_pattern(dtype, ReduceOp::user, ranks, rank, first, count, data);
  if (!has_float(dtype) || op == ReduceOp::user) return;
  for (uint64_t i = 0; i < count; ++i) {
    store(dtype, data, i, rounding_value(dtype, op, ranks, rank, first + i));
  }
}

// Reduces elements of all ranks' inputs in the canonical order.
class CanonicalTree {
 public:
  CanonicalTree(DType dtype, ReduceOp op, int ranks, uint64_t first, uint64_t count)
      : dtype_(dtype),
        op_(op),
        ranks_(ranks),
        first_(first),
        count_(count),
        widens_(op != ReduceOp::user && accumulator_of(dtype) != dtype) {}

  // Writes the reduction of ranks 0 to combined - 1.
  void write(int combined, void* elements) const {
    const std::vector<std::byte> result = combine(0, combined);
    if (op_ == ReduceOp::avg) {
      mean(elements, result.data(), nullptr, count_, dtype_, combined, {.a = widens_});
    } else if (widens_) {
      narrow(elements, result.data(), count_, dtype_);
    } else {
      std::memcpy(elements, result.data(), result.size());
    }
  }

 private:
  // Returns the reduction of ranks begin to end - 1, in accumulators.
  std::vector<std::byte> combine(int begin, int end) const {
    if (end - begin == 1) return leaf(begin);
    const int middle =
        begin + static_cast<int>(std::bit_floor(static_cast<uint32_t>(end - begin) - 1));
    std::vector<std::byte> left = combine(begin, middle);
    const std::vector<std::byte> right = combine(middle, end);
    if (op_ == ReduceOp::user) {
      compose(left.data(), left.data(), right.data(), count_, dtype_);
    } else {
      reduce_kernel(dtype_, op_)(left.data(), left.data(), right.data(), count_,
                                 {.dst = true, .a = true, .b = true});
    }
    return left;
  }

  std::vector<std::byte> leaf(int rank) const {
    std::vector<std::byte> elements(count_ * size_of(dtype_));
    write_rounding(dtype_, op_, ranks_, rank, first_, count_, elements.data());
    if (op_ == ReduceOp::premul_sum) {
      scale(elements.data(), elements.data(), count_, dtype_, rounding_factor(rank));
    }
    if (!widens_) return elements;
    std::vector<std::byte> accumulators(count_ * size_of(DType::f32));
    widen(accumulators.data(), elements.data(), count_, dtype_);
    return accumulators;
  }

  const DType dtype_;
  const ReduceOp op_;
  const int ranks_;
  const uint64_t first_;
  const uint64_t count_;
  const bool widens_;
};

bool is_sum(ReduceOp op) {
  return op == ReduceOp::sum || op == ReduceOp::avg || op == ReduceOp::premul_sum;
}

// Returns an element as double.
double load(DType dtype, const std::byte* data, uint64_t index) {
  const auto get = [&]<typename T>(T value) {
    std::memcpy(&value, data + index * sizeof(T), sizeof(T));
    return value;
  };
  if (dtype == DType::f64) return get(double{});
  if (dtype == DType::f32) return get(float{});
  return to_float(dtype, size_of(dtype) == 1 ? get(uint8_t{}) : get(uint16_t{}));
}

struct Interval {
  long double middle = 0;
  long double radius = 0;
};

// Returns one interval for each of `count` elements from index `first`, all of which are among the
// first kPatternPeriod. It contains the reduction of that element over ranks 0 .. combined - 1, in
// whatever order the ranks are combined and rounded.
std::vector<Interval> intervals(DType dtype, ReduceOp op, int ranks, int combined, uint64_t first,
                                uint64_t count) {
  std::vector<Interval> result(count, {.middle = op == ReduceOp::prod ? 1.0L : 0.0L});
  std::vector<std::byte> input(count * size_of(dtype));
  for (int rank = 0; rank < combined; ++rank) {
    write_rounding(dtype, op, ranks, rank, first, count, input.data());
    const long double factor = op == ReduceOp::premul_sum ? rounding_factor(rank) : 1;
    for (uint64_t i = 0; i < count; ++i) {
      const long double x = factor * load(dtype, input.data(), i);
      if (op == ReduceOp::prod) {
        result[i].middle *= x;
      } else {
        result[i].middle += x;
        result[i].radius += std::abs(x);
      }
    }
  }
  const Format format = format_of(dtype);
  const int roundings = combined + 2;  // roundings of the factor, the quotient and the additions
  const long double growth =
      std::pow(1 + std::ldexp(1.0L, -format.digits), static_cast<long double>(roundings)) - 1;
  for (Interval& interval : result) {
    if (op == ReduceOp::prod) interval.radius = std::abs(interval.middle);
    interval.radius = interval.radius * growth + roundings * std::ldexp(1.0L, format.tiniest);
    if (op != ReduceOp::avg) continue;
    interval.middle /= combined;
    interval.radius /= combined;
  }
  return result;
}

}  // namespace

double rounding_factor(int rank) { return 3 + 2 * (rank % 3); }

bool order_matters(DType dtype, ReduceOp op) {
  return is_float(dtype) && (is_sum(op) || op == ReduceOp::prod);
}

void fill_rounding(DType dtype, ReduceOp op, int ranks, int rank, uint64_t first, uint64_t count,
                   void* data) {
  fill_periodically(size_of(dtype), first, count, data, [&](uint64_t index, uint64_t n, void* to) {
    write_rounding(dtype, op, ranks, rank, index, n, to);
  });
}

void fill_canonical(DType dtype, ReduceOp op, int ranks, int combined, uint64_t first,
                    uint64_t count, void* data) {
  fill_periodically(size_of(dtype), first, count, data, [&](uint64_t index, uint64_t n, void* to) {
    CanonicalTree(dtype, op, ranks, index, n).write(combined, to);
  });
}

uint64_t count_outside_bound(DType dtype, ReduceOp op, int ranks, int combined, uint64_t first,
                             uint64_t count, const void* got) {
  const std::vector<Interval> expected =
      intervals(dtype, op, ranks, combined, 0, std::min(first + count, kPatternPeriod));
  uint64_t wrong = 0;
  for (uint64_t i = 0; i < count; ++i) {
    const Interval& interval = expected[(first + i) % kPatternPeriod];
    const long double value = load(dtype, static_cast<const std::byte*>(got), i);
    // A NaN counts as wrong.
    wrong += std::abs(value - interval.middle) <= interval.radius ? 0 : 1;
  }
  return wrong;
}

}  // namespace tutti::bench
