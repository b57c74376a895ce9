#include "training/optimizers/exact_sum.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/settings.h"
#include "training/core/layout.h"
#include "training/optimizers/blocks.h"
#include "training/optimizers/optimizer_loops.h"

namespace tutti::training {
namespace {

constexpr int kDigitBits = 32;
constexpr int64_t kDigitMask = (int64_t{1} << kDigitBits) - 1;
constexpr int kLowestBit = -352;            // the first digit's last bit has the value 2^kLowestBit
constexpr uint64_t kTooLarge = 1023 + 320;  // exponent field of the double 2^320
// Limits that keep limbs below 2^62.
constexpr int64_t kMaxPending = int64_t{1} << 29;
constexpr int64_t kMaxRanks = int64_t{1} << 20;

static_assert(optimizer_loops::kSquaresBlock == kAlignment);

}  // namespace

void ExactSum::add(double term) {
  constexpr int kMantissaBits = 52;
  constexpr uint64_t kHidden = uint64_t{1} << kMantissaBits;
  const uint64_t bits = std::bit_cast<uint64_t>(term);
  const uint64_t exponent = (bits >> kMantissaBits) & 0x7ff;
  if (exponent >= kTooLarge) {
    ++limbs_[kNotFinite];
    return;
  }
  uint64_t mantissa = (bits & (kHidden - 1)) | kHidden;
  // position of the mantissa's last bit, counted from the first digit's last bit
  int place = static_cast<int>(exponent) - 1023 - kMantissaBits - kLowestBit;
  if (place <= -(kMantissaBits + 1)) return;  // below the last digit; includes 0 and subnormals
  if (place < 0) {
    mantissa >>= -place;
    place = 0;
  }
  const unsigned __int128 shifted = static_cast<unsigned __int128>(mantissa)
                                    << (place % kDigitBits);
  const int64_t sign = std::signbit(term) ? -1 : 1;
  int64_t* const digits = &limbs_[static_cast<size_t>(place / kDigitBits)];
  for (int i = 0; i < 3; ++i) {
    digits[i] += sign * (static_cast<int64_t>(shifted >> (i * kDigitBits)) & kDigitMask);
  }
  if (++pending_ >= kMaxPending) carry();
}

void ExactSum::add(const ExactSum& other) {
  ExactSum carried = other;
  carried.carry();
  for (size_t i = 0; i < kLimbs; ++i) limbs_[i] += carried.limbs_[i];
  if (++pending_ >= kMaxPending) carry();
}

// Propagates the carries. On return all digits are in [0, 2^32), except the last one, which has the
// sign.
void ExactSum::carry() {
  for (size_t i = 0; i + 1 < kDigits; ++i) {
    limbs_[i + 1] += limbs_[i] >> kDigitBits;
    limbs_[i] &= kDigitMask;
  }
  pending_ = 0;
}

std::span<int64_t, ExactSum::kLimbs> ExactSum::limbs() {
  carry();
  pending_ = kMaxRanks;
  return limbs_;
}

double ExactSum::value() const {
  if (limbs_[kNotFinite] != 0) return std::numeric_limits<double>::quiet_NaN();
  ExactSum magnitude = *this;
  magnitude.carry();
  const bool negative = magnitude.limbs_[kDigits - 1] < 0;
  if (negative) {
    for (int64_t& limb : magnitude.limbs_) limb = -limb;
    magnitude.carry();
  }
  int top = kDigits - 1;
  while (top > 2 && magnitude.limbs_[static_cast<size_t>(top)] == 0) --top;
  unsigned __int128 digits = 0;
  for (int i = top; i > top - 3; --i) {
    digits =
        (digits << kDigitBits) + static_cast<uint64_t>(magnitude.limbs_[static_cast<size_t>(i)]);
  }
  int weight = kLowestBit + (top - 2) * kDigitBits;
  // 64 bits suffice to round to 53 bits if the last bit is a sticky bit for all lower bits.
  bool more = std::any_of(magnitude.limbs_.begin(), magnitude.limbs_.begin() + (top - 2),
                          [](int64_t limb) { return limb != 0; });
  while (digits >> 64 != 0) {
    more = more || (digits & 1) != 0;
    digits >>= 1;
    ++weight;
  }
  const uint64_t rounded = static_cast<uint64_t>(digits) | (more ? 1 : 0);
  const double result = std::ldexp(static_cast<double>(rounded), weight);
  return negative ? -result : result;
}

namespace {

bool adds_each_square() { return settings().get_bool("TUTTI_DETERMINISTIC"); }

// `each`: adds each square by itself.
void add_squares(std::span<const float> elements, bool each, ExactSum& sum) {
  if (each) {
    // The square of a float is exact in double.
    for (const float element : elements) sum.add(static_cast<double>(element) * element);
    return;
  }
  constexpr size_t kBlock = optimizer_loops::kSquaresBlock;
  constexpr size_t kBlocks = kUpdateBlock / kBlock;
  const optimizer_loops::Loops& loops = optimizer_loops::loops();
  std::array<double, kBlocks> sums;
  const auto add = [&](const float* values, size_t blocks) {
    loops.squares(values, sums.data(), static_cast<int64_t>(blocks));
    for (size_t i = 0; i < blocks; ++i) sum.add(sums[i]);
  };
  while (elements.size() >= kBlock) {
    const size_t blocks = std::min(elements.size() / kBlock, kBlocks);
    add(elements.data(), blocks);
    elements = elements.subspan(blocks * kBlock);
  }
  if (elements.empty()) return;
  std::array<float, kBlock> last{};
  std::copy(elements.begin(), elements.end(), last.begin());
  add(last.data(), 1);
}

}  // namespace

void add_squares(std::span<const float> elements, ExactSum& sum) {
  add_squares(elements, adds_each_square(), sum);
}

void add_squares(ConstTensor elements, ExactSum& sum) {
  const bool each = adds_each_square();
  std::array<float, kUpdateBlock> buffer;
  for (int64_t begin = 0; begin < elements.cols; begin += kUpdateBlock) {
    const int64_t count = std::min<int64_t>(kUpdateBlock, elements.cols - begin);
    add_squares(as_floats(elements.col_range(begin, count), buffer), each, sum);
  }
}

}  // namespace tutti::training
