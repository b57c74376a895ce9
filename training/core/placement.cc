#include "training/core/placement.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace tutti::training {
namespace {

Slice::Ranges all_of(int64_t size) {
  return size == 0 ? Slice::Ranges() : Slice::Ranges{{0, size}};
}

int64_t length_of(const Slice::Ranges& ranges) {
  int64_t length = 0;
  for (const Slice::Range& range : ranges) length += range.end - range.begin;
  return length;
}

bool is_good(const Slice::Ranges& ranges, int64_t size) {
  int64_t free = 0;
  for (const Slice::Range& range : ranges) {
    if (range.begin < free || range.begin >= range.end || range.end > size) return false;
    free = range.end + 1;
  }
  return true;
}

Error refused(const Cut& cut, std::string_view why) {
  return Error(ErrorCode::invalid_argument,
               cat("dimension ", cut.dimension, " cannot be sharded over the axis ", name(cut.axis),
                   ": ", why));
}

Slice::Ranges cut_ranges(const Cut& cut, int64_t size, const MeshPlace& place) {
  const std::vector<int64_t> parts = cut.parts.empty() ? std::vector{size} : cut.parts;
  Slice::Ranges ranges;
  int64_t start = 0;
  for (const int64_t part : parts) {
    if (part < 0) throw refused(cut, cat("a part of it has size ", part));
    const Share own = even_share(part, place.place(cut.axis), place.size(cut.axis));
    const int64_t begin = start + own.first;
    const int64_t end = begin + own.count;
    if (!ranges.empty() && ranges.back().end == begin) {
      ranges.back().end = end;
    } else if (begin < end) {
      ranges.push_back({begin, end});
    }
    start += part;
  }
  if (start != size) throw refused(cut, cat("its parts sum to ", start, ", not ", size));
  return ranges;
}

}  // namespace

Slice::Slice(std::vector<int64_t> shape) : whole_(std::move(shape)), shape_(whole_) {
  for (const int64_t size : whole_) {
    ranges_.push_back(all_of(size));
    count_ *= size;
  }
}

Slice::Slice(std::vector<int64_t> shape, std::vector<Ranges> ranges)
    : whole_(std::move(shape)), ranges_(std::move(ranges)) {
  bool good = ranges_.size() == whole_.size();
  for (size_t d = 0; good && d < ranges_.size(); ++d) {
    good = is_good(ranges_[d], whole_[d]);
    if (!good) break;
    shape_.push_back(length_of(ranges_[d]));
    count_ *= shape_.back();
  }
  if (!good) {
    throw Error(ErrorCode::invalid_argument,
                "these ranges are not a slice of a tensor of that shape");
  }
}

// Returns the run. Walks from the innermost dimension outwards; the run ends with the current range
// of the innermost dimension that is cut.
Slice::Run Slice::run_from(int64_t element) const {
  Run run{.whole = 0, .count = 0};
  int64_t stride = 1;  // distance of the dimension's elements in the whole tensor
  for (size_t d = ranges_.size(); d-- > 0;) {
    int64_t index = element % shape_[d];
    element /= shape_[d];
    auto range = ranges_[d].begin();
    for (; index >= range->end - range->begin; ++range) index -= range->end - range->begin;
    index += range->begin;
    run.whole += index * stride;
    const bool cut = shape_[d] != whole_[d];
    if (run.count == 0 && (cut || d == 0)) run.count = range->end * stride - run.whole;
    stride *= whole_[d];
  }
  if (ranges_.empty()) run.count = 1;
  return run;
}

int64_t Slice::count_before(int64_t whole_element) const {
  if (count_ == 0) return 0;
  int64_t stride = std::accumulate(whole_.begin(), whole_.end(), int64_t{1}, std::multiplies<>());
  if (whole_element >= stride) return count_;
  int64_t own_stride = count_;
  int64_t before = 0;
  for (size_t d = 0; d < ranges_.size(); ++d) {
    stride /= whole_[d];
    own_stride /= shape_[d];
    const int64_t index = whole_element / stride;
    whole_element %= stride;
    bool has_it = false;
    for (const Range& range : ranges_[d]) {
      before += (std::clamp(index, range.begin, range.end) - range.begin) * own_stride;
      has_it = has_it || (range.begin <= index && index < range.end);
    }
    if (!has_it) break;
  }
  return before;
}

bool Slice::overlaps(const Slice& other) const {
  if (count_ == 0 || other.count_ == 0 || whole_ != other.whole_) return false;
  for (size_t d = 0; d < ranges_.size(); ++d) {
    const bool meet = std::ranges::any_of(ranges_[d], [&](const Range& a) {
      return std::ranges::any_of(
          other.ranges_[d], [&](const Range& b) { return a.begin < b.end && b.begin < a.end; });
    });
    if (!meet) return false;
  }
  return true;
}

std::optional<Slice> Slice::in_blocks(int64_t block) const {
  size_t folded = whole_.size();  // index of the first merged dimension
  int64_t inner = 1;              // product of the merged dimensions after the first
  for (int64_t all = 1; folded > 0 && (folded == whole_.size() || all % block != 0);) {
    inner = all;
    all *= whole_[--folded];
  }
  const int64_t last = whole_.empty() ? 1 : inner * whole_[folded];
  std::vector<int64_t> shape(whole_.begin(), whole_.begin() + static_cast<std::ptrdiff_t>(folded));
  std::vector<Ranges> ranges(ranges_.begin(),
                             ranges_.begin() + static_cast<std::ptrdiff_t>(folded));
  shape.push_back((last + block - 1) / block);
  if (is_whole()) return Slice(shape);
  ranges.emplace_back();
  for (const Range& range : ranges_[folded]) {
    const int64_t begin = range.begin * inner;
    const int64_t end = range.end * inner;
    if (begin % block != 0 || (end % block != 0 && end != last)) return {};
    ranges.back().push_back({begin / block, (end + block - 1) / block});
  }
  for (size_t d = folded + 1; d < whole_.size(); ++d) {
    if (shape_[d] != whole_[d] && count_ > 0) return {};
  }
  return Slice(shape, ranges);
}

std::string to_text(const Slice& slice) {
  std::string text;
  for (const Slice::Ranges& ranges : slice.ranges()) {
    if (!text.empty()) text += ", ";
    for (size_t i = 0; i < ranges.size(); ++i) {
      text += cat(i == 0 ? "" : "+", ranges[i].begin, ':', ranges[i].end);
    }
  }
  return text;
}

AxisSet Placement::cut_over() const {
  AxisSet axes = owner.axes;
  for (const Cut& cut : cuts) axes = axes | AxisSet{cut.axis};
  return axes;
}

Slice slice_of(const std::vector<int64_t>& shape, const Placement& placement,
               const MeshPlace& place) {
  std::vector<Slice::Ranges> ranges;
  for (const int64_t size : shape) ranges.push_back(all_of(size));
  AxisSet axes = placement.owner.axes;
  std::vector<bool> cut_already(shape.size());
  for (const Cut& cut : placement.cuts) {
    const auto dimension = static_cast<size_t>(cut.dimension);
    if (cut.dimension < 0 || dimension >= shape.size())
      throw refused(cut, "the parameter has no such dimension");
    if (cut.axis != Axis::tensor) {
      throw refused(cut, "the parameters along this axis are replicated or unrelated");
    }
    if (axes.has(cut.axis) || cut_already[dimension])
      throw refused(cut, "one of the dimensions is sharded already");
    axes = axes | AxisSet{cut.axis};
    cut_already[dimension] = true;
    ranges[dimension] = cut_ranges(cut, shape[dimension], place);
  }
  if (!placement.partial.without(AxisSet{Axis::tensor}.without(axes)).empty()) {
    throw Error(ErrorCode::invalid_argument,
                cat("a gradient cannot be a partial sum over ", name(placement.partial)),
                {.cause = "gradients are always partial sums over the batch axes, never over the "
                          "pipeline axis or an axis that shards the parameter"});
  }
  const SoleOwner& owner = placement.owner;
  const bool is_one = owner.number >= 0 && owner.number < place.ranks_along(owner.axes);
  if (!is_one || owner.axes.has(Axis::pipeline) || (!owner.axes.empty() && shape.empty())) {
    throw Error(
        ErrorCode::invalid_argument,
        cat("number ", owner.number, " along ", name(owner.axes),
            " cannot be the only owner of a parameter"),
        {.cause = "the rank does not exist, it belongs to another stage, or the parameter is a "
                  "scalar, which other ranks could not distinguish from an empty one"});
  }
  if (owner.number != place.number_along(owner.axes)) ranges.assign(shape.size(), {});
  return {shape, std::move(ranges)};
}

}  // namespace tutti::training
