#include "training/parameters.h"

#include <algorithm>
#include <limits>
#include <new>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace tutti::training {
namespace {

constexpr size_t kAlignmentElements = kParameterAlignment / sizeof(float);

size_t aligned(size_t elements) {
  return (elements + kAlignmentElements - 1) / kAlignmentElements * kAlignmentElements;
}

size_t element_count(const ParameterSpec& spec) {
  constexpr size_t kMax = std::numeric_limits<int64_t>::max() / sizeof(float);
  size_t count = 1;
  for (int64_t dimension : spec.shape) {
    if (dimension < 0 || (dimension > 0 && count > kMax / static_cast<size_t>(dimension))) {
      throw Error(ErrorCode::invalid_argument,
                  cat("parameter ", spec.name, " has an impossible dimension, ", dimension),
                  {.remedy = "give dimensions of 0 or more that fit into memory"});
    }
    count *= static_cast<size_t>(dimension);
  }
  return count;
}

}  // namespace

size_t ParameterLayout::parameter_count() const {
  size_t total = 0;
  for (const ParameterSlot& slot : slots) total += slot.count;
  return total;
}

const ParameterSlot& ParameterLayout::find(std::string_view name) const {
  const auto found = std::find_if(slots.begin(), slots.end(),
                                  [name](const ParameterSlot& slot) { return slot.name == name; });
  if (found == slots.end()) {
    throw Error(ErrorCode::invalid_argument, cat("the layout has no parameter named ", name));
  }
  return *found;
}

ParameterLayout make_layout(const std::vector<ParameterSpec>& specs) {
  ParameterLayout layout;
  std::set<std::string_view> names;
  for (const ParameterSpec& spec : specs) {
    if (!names.insert(spec.name).second) {
      throw Error(ErrorCode::invalid_argument, cat("two parameters are named ", spec.name),
                  {.remedy = "give each module its own prefix"});
    }
    const size_t count = element_count(spec);
    layout.slots.push_back({spec.name, spec.shape, layout.size, count});
    layout.size = aligned(layout.size + count);
  }
  return layout;
}

Memory<float> allocate_host(size_t count) {
  constexpr std::align_val_t kPage{4096};
  const size_t bytes = std::max<size_t>(1, count) * sizeof(float);
  auto* memory = static_cast<float*>(::operator new(bytes, kPage));
  std::fill_n(memory, count, 0.0f);
  return {memory, [](float* pointer) { ::operator delete(pointer, kPage); }};
}

Parameters::Parameters(ParameterLayout layout, Memory<float> values, Memory<float> gradients)
    : layout_(std::move(layout)), values_(std::move(values)), gradients_(std::move(gradients)) {}

Parameters::Parameters(ParameterLayout layout)
    : layout_(std::move(layout)),
      values_(allocate_host(layout_.size)),
      gradients_(allocate_host(layout_.size)) {}

Parameter Parameters::at(size_t slot) const {
  const ParameterSlot& place = layout_.slots.at(slot);
  return {values().subspan(place.offset, place.count),
          gradients().subspan(place.offset, place.count)};
}

void Parameters::zero_gradients() { std::ranges::fill(gradients(), 0.0f); }

}  // namespace tutti::training
