#include "training/core/parameters.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"
#include "training/core/random.h"

namespace tutti::training {
namespace {

void check_shape(const ParameterSpec& spec) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max() / 16;
  int64_t count = 1;
  for (const int64_t dimension : spec.shape) {
    if (dimension < 0 || (dimension > 0 && count > kMax / dimension)) {
      throw Error(ErrorCode::invalid_argument,
                  cat("parameter ", spec.name, " has an invalid dimension, ", dimension),
                  {.remedy = "use dimensions of at least 0 that fit in memory"});
    }
    count *= dimension;
  }
}

void check_placement(const ParameterSpec& spec) {
  try {
    spec.slice();
  } catch (const Error& error) {
    throw Error(error.code(), cat("parameter ", spec.name, ": ", error.what()));
  }
}

// Returns a normally distributed number (Box, Muller: A note on the generation of random normal
// deviates, 1958). Elements 2k and 2k + 1 come from one pair of uniform numbers.
double normal_value(uint64_t seed, uint64_t stream, uint64_t index) {
  const auto uniform = [&](uint64_t i) {
    // uniform in (0, 1]
    return static_cast<double>((random_bits(seed, stream, i) >> 11) + 1) * 0x1p-53;
  };
  const uint64_t pair = index / 2 * 2;
  const double radius = std::sqrt(-2 * std::log(uniform(pair)));
  const double angle = 2 * std::numbers::pi * uniform(pair + 1);
  return radius * (index % 2 == 0 ? std::cos(angle) : std::sin(angle));
}

}  // namespace

int64_t ParameterSpec::count() const {
  int64_t product = 1;
  for (const int64_t dimension : shape) product *= dimension;
  return product;
}

uint64_t ParameterSpec::stream() const { return fnv(name); }

const Parameter* ParameterTable::add(std::string name, std::vector<int64_t> shape, Initial initial,
                                     Placement placement) {
  const bool matrix = shape.size() >= 2;
  ParameterSpec spec{std::move(name), std::move(shape),     initial, unit_,
                     matrix,          std::move(placement), mesh_};
  check_shape(spec);
  check_placement(spec);
  if (!names_.insert(spec.name).second) {
    throw Error(ErrorCode::invalid_argument, cat("two parameters are named ", spec.name),
                {.remedy = "give each module its own prefix"});
  }
  specs_.push_back(std::move(spec));
  views_.emplace_back();
  use(size() - 1);
  return &views_.back();
}

const Parameter* ParameterTable::share(const Parameter* parameter) {
  for (int index = 0; index < size(); ++index) {
    if (&at(index) != parameter) continue;
    use(index);
    shared_uses_.push_back({index, unit_, *parameter});
    return &shared_uses_.back().view;
  }
  throw Error(ErrorCode::internal, "a unit shares a parameter that is not in the table");
}

void ParameterTable::use(int index) {
  uses_.resize(std::max(uses_.size(), static_cast<size_t>(unit_) + 1));
  uses_[static_cast<size_t>(unit_)].push_back(index);
}

void ParameterTable::set_value(int index, Tensor value) {
  views_.at(static_cast<size_t>(index)).value = value;
  for (SharedUse& use : shared_uses_) {
    if (use.parameter == index) use.view.value = value;
  }
}

void ParameterTable::set_quantized(int index, const QuantizedMatrix* values) {
  views_.at(static_cast<size_t>(index)).quantized = values;
  for (SharedUse& use : shared_uses_) {
    if (use.parameter == index) use.view.quantized = values;
  }
}

void ParameterTable::set_gradient(int index, Tensor gradient) {
  views_.at(static_cast<size_t>(index)).gradient = gradient;
  for (SharedUse& use : shared_uses_) {
    if (use.parameter == index) use.view.gradient = gradient;
  }
}

std::vector<Tensor> ParameterTable::separate_gradients(int index) const {
  std::vector<Tensor> apart;
  for (const SharedUse& use : shared_uses_) {
    const Tensor gradient = use.view.gradient;
    if (use.parameter == index && gradient.data != at(index).gradient.data) {
      apart.push_back(gradient);
    }
  }
  return apart;
}

const std::vector<int>& ParameterTable::used_by(int unit) const {
  static const std::vector<int> kNone;
  return static_cast<size_t>(unit) < uses_.size() ? uses_[static_cast<size_t>(unit)] : kNone;
}

void draw(const Initial& initial, uint64_t seed, uint64_t stream, int64_t first,
          std::span<float> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    const uint64_t index = static_cast<uint64_t>(first) + i;
    switch (initial.kind) {
      case Initial::Kind::constant:
        values[i] = static_cast<float>(initial.scale);
        break;
      case Initial::Kind::normal:
        values[i] = static_cast<float>(initial.scale * normal_value(seed, stream, index));
        break;
      case Initial::Kind::uniform:
        values[i] =
            scale_symmetric(random_bits(seed, stream, index), static_cast<float>(initial.scale));
        break;
    }
  }
}

void initial_values(const ParameterSpec& spec, uint64_t seed, int64_t first,
                    std::span<float> values) {
  for_each_run(spec.slice(), first, std::ssize(values), [&](const Slice::Run& run, int64_t at) {
    draw(spec.initial, seed, spec.stream(), run.whole,
         values.subspan(static_cast<size_t>(at), static_cast<size_t>(run.count)));
  });
}

}  // namespace tutti::training
