#include "training/core/layout.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace tutti::training {
namespace {

size_t at(int index) { return static_cast<size_t>(index); }

void check(const LayoutOptions& options) {
  const int fewest = options.ranks.empty() ? 0 : std::ranges::min(options.ranks);
  if (fewest >= 1 && options.bucket_elements >= 1 && options.first_bucket_elements >= 1) return;
  throw Error(ErrorCode::invalid_argument,
              cat("buckets of ", options.bucket_elements, " elements (the first: ",
                  options.first_bucket_elements, ") on ", fewest, " ranks are invalid"),
              {.remedy = "use at least 1 of each"});
}

// Returns true if all tensor-parallel ranks have the same number of elements.
bool is_cut_evenly(const ParameterSpec& spec) {
  if (spec.placement.owner.axes.has(Axis::tensor) && spec.mesh.size(Axis::tensor) > 1) return false;
  for (const Cut& cut : spec.placement.cuts) {
    std::vector<int64_t> parts = cut.parts;
    if (parts.empty()) parts = {spec.shape[at(cut.dimension)]};
    for (const int64_t part : parts) {
      if (part % spec.mesh.size(cut.axis) != 0) return false;
    }
  }
  return true;
}

// Assigns parameters to the buckets of their groups, in the order in which backward finishes them.
class Filler {
 public:
  Filler(const std::vector<ParameterSpec>& specs, const LayoutOptions& options)
      : specs_(specs),
        options_(options),
        open_(options.ranks.size()),
        has_first_(options.ranks.size()) {
    layout_.slots.resize(specs.size());
  }

  void add(int parameter) {
    const size_t group = options_.groups.empty() ? 0 : at(options_.groups[at(parameter)]);
    const bool is_alone = std::ranges::count(options_.alone, parameter) > 0;
    if (is_alone) return add_alone(parameter, group);
    if (is_full(group, specs_[at(parameter)].unit)) close(group);
    Bucket& bucket = open_[group];
    const int64_t count = specs_[at(parameter)].local_count();
    layout_.slots[at(parameter)] = {parameter, 0, bucket.size, count};
    bucket.parameters.push_back(parameter);
    bucket.size = round_up(bucket.size + count, options_.alignment);
  }

  Layout finish() {
    for (size_t group = 0; group < open_.size(); ++group) {
      if (!open_[group].parameters.empty()) close(group);
    }
    // Buckets that backward finishes first come first, because ranks sum buckets in this order.
    std::ranges::stable_sort(layout_.buckets, std::greater(),
                             [](const Bucket& bucket) { return bucket.parameters.back(); });
    for (size_t b = 0; b < layout_.buckets.size(); ++b) {
      Bucket& bucket = layout_.buckets[b];
      bucket.offset = layout_.size;
      bucket.owned_offset = layout_.owned_size;
      layout_.size += bucket.size;
      layout_.owned_size += bucket.shard_size();
      for (const int parameter : bucket.parameters) {
        layout_.slots[at(parameter)].bucket = static_cast<int>(b);
      }
    }
    return std::move(layout_);
  }

 private:
  // Returns true if the group's open bucket is full. The result depends on this group alone,
  // because the ranks of a group may differ in their other groups.
  bool is_full(size_t group, int unit) const {
    const Bucket& bucket = open_[group];
    if (bucket.parameters.empty()) return false;
    if (options_.bucket_per_unit) return specs_[at(bucket.parameters.back())].unit != unit;
    return bucket.size >=
           (has_first_[group] ? options_.bucket_elements : options_.first_bucket_elements);
  }

  // Adds a bucket for this parameter. The group's open bucket continues to take the parameters
  // before and after it.
  void add_alone(int parameter, size_t group) {
    Bucket open = std::exchange(open_[group], {});
    const bool has_first = has_first_[group];
    const int64_t count = specs_[at(parameter)].local_count();
    layout_.slots[at(parameter)] = {parameter, 0, 0, count};
    open_[group].parameters = {parameter};
    open_[group].size = round_up(count, options_.alignment);
    close(group);
    open_[group] = std::move(open);
    has_first_[group] = has_first;
  }

  void close(size_t group) {
    Bucket& bucket = open_[group];
    has_first_[group] = true;
    bucket.group = static_cast<int>(group);
    bucket.ranks = options_.ranks[group];
    bucket.size = round_up(bucket.size, bucket.ranks * options_.alignment);
    layout_.buckets.push_back(std::exchange(bucket, {}));
  }

  const std::vector<ParameterSpec>& specs_;
  const LayoutOptions& options_;
  std::vector<Bucket> open_;  // by group: the bucket that is being filled
  std::vector<bool> has_first_;
  Layout layout_;
};

}  // namespace

GroupTable parameter_groups(const std::vector<ParameterSpec>& specs,
                            const std::vector<int>& parameters) {
  // the axes of the sum, and true if the parameter is in the group of replicated parameters
  using Key = std::pair<AxisSet, bool>;
  const bool separate_copies = !std::ranges::all_of(specs, is_cut_evenly);
  std::map<Key, std::vector<int>> by_key;
  for (const int parameter : parameters) {
    const ParameterSpec& spec = specs[at(parameter)];
    const Placement& placement = spec.placement;
    // Axes with one rank do not distinguish groups.
    const AxisSet one = spec.mesh.axes_of_one();
    const AxisSet axes = placement.summed_over().without(one) | (kBatchAxes & one);
    const bool is_copy = placement.cut_over().empty() && axes == kBatchAxes;
    by_key[{axes, separate_copies && is_copy}].push_back(parameter);
  }
  GroupTable table{.group_of = std::vector<int>(specs.size())};
  for (const auto& [key, its] : by_key) {
    if (key == Key(kBatchAxes, false)) continue;
    const auto group = static_cast<int>(table.axes.size());
    for (const int parameter : its) table.group_of[at(parameter)] = group;
    table.axes.push_back(key.first);
  }
  return table;
}

std::vector<Piece> Layout::pieces(const std::vector<int>& owners) const {
  std::vector<Piece> pieces;
  for (int b = 0; b < static_cast<int>(buckets.size()); ++b) {
    const Bucket& bucket = buckets[static_cast<size_t>(b)];
    const int64_t begin = owners[static_cast<size_t>(bucket.group)] * bucket.shard_size();
    const int64_t end = begin + bucket.shard_size();
    for (const int parameter : bucket.parameters) {
      const Slot& slot = slots[static_cast<size_t>(parameter)];
      const int64_t from = std::max(begin, slot.offset);
      const int64_t to = std::min(end, slot.offset + slot.count);
      if (from >= to) continue;
      pieces.push_back(
          {parameter, from - slot.offset, to - from, b, from, bucket.owned_offset + from - begin});
    }
  }
  return pieces;
}

Layout make_layout(const std::vector<ParameterSpec>& specs, const LayoutOptions& options) {
  check(options);
  std::vector<int> parameters(specs.size());
  std::iota(parameters.begin(), parameters.end(), 0);
  if (options.parameters) parameters = *options.parameters;
  std::ranges::reverse(parameters);
  Filler filler(specs, options);
  for (const int parameter : parameters) filler.add(parameter);
  return filler.finish();
}

}  // namespace tutti::training
