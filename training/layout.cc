#include "training/layout.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/text.h"

namespace tutti::training {
namespace {

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

void check(const LayoutOptions& options) {
  if (options.ranks >= 1 && options.bucket_elements >= 1 && options.first_bucket_elements >= 1) {
    return;
  }
  throw Error(ErrorCode::invalid_argument,
              cat("buckets of ", options.bucket_elements, " elements (the first: ",
                  options.first_bucket_elements, ") on ", options.ranks, " ranks make no sense"),
              {.remedy = "give at least 1 of each"});
}

}  // namespace

int64_t Layout::shard_size(int bucket) const {
  return buckets[static_cast<size_t>(bucket)].size / ranks;
}

int64_t Layout::owned_offset(int bucket) const {
  return buckets[static_cast<size_t>(bucket)].offset / ranks;
}

std::vector<Piece> Layout::pieces(int owner) const {
  std::vector<Piece> pieces;
  for (int b = 0; b < static_cast<int>(buckets.size()); ++b) {
    const int64_t begin = owner * shard_size(b);
    const int64_t end = begin + shard_size(b);
    for (const int parameter : buckets[static_cast<size_t>(b)].parameters) {
      const Slot& slot = slots[static_cast<size_t>(parameter)];
      const int64_t from = std::max(begin, slot.offset);
      const int64_t to = std::min(end, slot.offset + slot.count);
      if (from >= to) continue;
      pieces.push_back(
          {parameter, from - slot.offset, to - from, b, from, owned_offset(b) + from - begin});
    }
  }
  return pieces;
}

Layout make_layout(const std::vector<ParameterSpec>& specs, const LayoutOptions& options) {
  check(options);
  Layout layout{.ranks = options.ranks, .slots = std::vector<Slot>(specs.size())};
  const auto close = [&] {
    Bucket& bucket = layout.buckets.back();
    bucket.size = round_up(bucket.size, options.ranks * kAlignment);
    layout.size += bucket.size;
  };
  std::vector<int> parameters(specs.size());
  std::iota(parameters.begin(), parameters.end(), 0);
  if (options.parameters) parameters = *options.parameters;
  std::ranges::reverse(parameters);
  int unit = 0;
  for (const int parameter : parameters) {
    const ParameterSpec& spec = specs[static_cast<size_t>(parameter)];
    const int64_t limit =
        layout.buckets.size() <= 1 ? options.first_bucket_elements : options.bucket_elements;
    const bool full =
        !layout.buckets.empty() &&
        (options.bucket_per_unit ? spec.unit != unit : layout.buckets.back().size >= limit);
    if (full) close();
    if (full || layout.buckets.empty()) layout.buckets.push_back({.offset = layout.size});
    Bucket& bucket = layout.buckets.back();
    const int64_t count = spec.local_count();
    layout.slots[static_cast<size_t>(parameter)] = {
        parameter, static_cast<int>(layout.buckets.size()) - 1, bucket.size, count};
    bucket.parameters.push_back(parameter);
    bucket.size = round_up(bucket.size + count, kAlignment);
    unit = spec.unit;
  }
  if (!layout.buckets.empty()) close();
  return layout;
}

}  // namespace tutti::training
