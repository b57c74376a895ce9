#include "training/modules/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/text.h"
#include "training/kernels/rope.h"

namespace tutti::training {
namespace {

void check(int64_t head_size, const RopeOptions& options) {
  if (head_size % 2 != 0) {
    throw Error(ErrorCode::invalid_argument,
                cat("rotary positions require an even head size, not ", head_size),
                {.remedy = "use a width that is an even multiple of the number of heads"});
  }
  const auto refuse = [](const char* what, double value) {
    throw Error(ErrorCode::invalid_argument, cat("rotary positions cannot have ", what, ' ', value),
                {.remedy = "use the values with which the model was created"});
  };
  const bool has_original =
      options.scaling == RopeScaling::dynamic || options.scaling == RopeScaling::llama3;
  if (!(options.base > 0 && std::isfinite(options.base))) refuse("the base", options.base);
  if (options.scaling == RopeScaling::none) return;
  if (!(options.factor >= 1 && std::isfinite(options.factor))) refuse("the factor", options.factor);
  if (has_original && options.original_context < 1) {
    refuse("an original context of", static_cast<double>(options.original_context));
  }
  if (options.scaling == RopeScaling::dynamic && head_size < 4) {
    refuse("a dynamic base with heads of", static_cast<double>(head_size));
  }
  if (options.scaling == RopeScaling::llama3 &&
      !(options.low_turns > 0 && options.high_turns > options.low_turns)) {
    refuse("a low frequency factor, relative to the high one, of", options.low_turns);
  }
}

double base_of(int64_t context, int64_t head_size, const RopeOptions& options) {
  if (options.scaling != RopeScaling::dynamic || context <= options.original_context) {
    return options.base;
  }
  const double longer =
      static_cast<double>(context) / static_cast<double>(options.original_context);
  const auto size = static_cast<double>(head_size);
  return options.base * std::pow(options.factor * longer - (options.factor - 1), size / (size - 2));
}

double slowed(double frequency, const RopeOptions& options) {
  if (options.scaling == RopeScaling::linear) return frequency / options.factor;
  if (options.scaling != RopeScaling::llama3) return frequency;
  const double turns =
      static_cast<double>(options.original_context) * frequency / (2 * std::numbers::pi);
  const double fast =
      std::clamp((turns - options.low_turns) / (options.high_turns - options.low_turns), 0.0, 1.0);
  return (1 - fast) * frequency / options.factor + fast * frequency;
}

}  // namespace

Rope::Rope(int64_t context, int64_t head_size, const RopeOptions& options)
    : context_(context), head_size_(head_size) {
  check(head_size, options);
  const int64_t half = head_size / 2;
  const double base = base_of(context, head_size, options);
  table_f64_.resize(static_cast<size_t>(context * head_size));
  for (int64_t i = 0; i < half; ++i) {
    const double frequency = slowed(
        std::pow(base, -2 * static_cast<double>(i) / static_cast<double>(head_size)), options);
    for (int64_t position = 0; position < context; ++position) {
      const double angle = static_cast<double>(position) * frequency;
      table_f64_[static_cast<size_t>(position * head_size + i)] = std::cos(angle);
      table_f64_[static_cast<size_t>(position * head_size + half + i)] = std::sin(angle);
    }
  }
  table_.assign(table_f64_.begin(), table_f64_.end());
}

void Rope::turn(Tensor rows, int64_t heads, int64_t context, int64_t first, int direction) const {
  require_shapes(first + context <= context_, "rope");
  const auto at = static_cast<size_t>(first * head_size_);
  const void* table = rows.dtype == DType::f64 ? static_cast<const void*>(table_f64_.data() + at)
                                               : static_cast<const void*>(table_.data() + at);
  rope(rows, heads, head_size_, context, table, direction);
}

}  // namespace tutti::training
