#include "training/parallel/averaging/secure_sum.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "base/error.h"
#include "base/text.h"
#include "training/core/random.h"

namespace tutti::training {

namespace {

constexpr double kUnits = 0x1p36;

}  // namespace

void to_fixed_point(std::span<const float> values, int clients, std::span<uint64_t> words) {
  const double limit = 0x1p63 / kUnits / clients;
  for (size_t i = 0; i < values.size(); ++i) {
    const double value = values[i];
    if (!(std::abs(value) < limit)) {
      throw Error(ErrorCode::invalid_argument,
                  cat("a value of ", value, " cannot be summed in fixed point"),
                  {.where = "--secure-sums",
                   .cause = cat("with ", clients, " clients each value must be below ", limit),
                   .remedy = "use a smaller learning rate, or remove --secure-sums"});
    }
    words[i] = static_cast<uint64_t>(std::llround(value * kUnits));
  }
}

void from_fixed_point(std::span<const uint64_t> words, std::span<float> values) {
  std::ranges::transform(words, values.begin(), [](uint64_t word) {
    return static_cast<float>(static_cast<double>(static_cast<int64_t>(word)) / kUnits);
  });
}

void add_masks(std::span<uint64_t> words, int client, const std::vector<bool>& takes_part,
               uint64_t seed, int64_t round, uint64_t first) {
  for (size_t other = 0; other < takes_part.size(); ++other) {
    const auto own = static_cast<size_t>(client);
    if (!takes_part[other] || other == own) continue;
    const uint64_t pair = random_bits(seed, std::min(own, other), std::max(own, other));
    const uint64_t sign = own < other ? 1 : ~uint64_t{0};
    for (size_t i = 0; i < words.size(); ++i) {
      words[i] += sign * random_bits(pair, static_cast<uint64_t>(round), first + i);
    }
  }
}

}  // namespace tutti::training
