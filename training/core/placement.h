// Describes which elements of a tensor a rank has, and where they are in the whole tensor. Initial
// values, gradient norms, checkpoints, import and export all read this one description.
//
// Example: a tensor of 6 x 4 whose rows are two packed parts of 4 and 2, sharded over 2 ranks:
//
//   rows 0 1   rank 0        rank 0's slice: rows [0, 2) and [4, 5), all columns
//        2 3   rank 1        its elements, in row-major order, are the whole's elements
//        4     rank 0          0 to 7        -> 0 to 7
//        5     rank 1          8 to 11       -> 16 to 19
//
// A slice keeps the order that its elements have in the whole tensor.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "training/core/axes.h"

namespace tutti::training {

// A part of a tensor: the product of a list of index ranges for each dimension.
class Slice {
 public:
  struct Range {
    int64_t begin = 0;
    int64_t end = 0;
    bool operator==(const Range&) const = default;
  };
  using Ranges = std::vector<Range>;  // ascending, non-empty, and separated by gaps

  // Creates the slice that is the whole tensor.
  explicit Slice(std::vector<int64_t> shape);
  // Creates the slice with these ranges: one list for each dimension. Throws
  // Error(invalid_argument) unless each list is ascending with gaps and inside the shape.
  Slice(std::vector<int64_t> shape, std::vector<Ranges> ranges);

  const std::vector<int64_t>& whole_shape() const { return whole_; }
  const std::vector<Ranges>& ranges() const { return ranges_; }
  // Returns the shape of the slice itself.
  const std::vector<int64_t>& shape() const { return shape_; }
  int64_t count() const { return count_; }
  bool is_whole() const { return shape_ == whole_; }

  // A run: elements that are consecutive both in the slice and in the whole tensor.
  struct Run {
    int64_t whole = 0;  // index of the run's first element in the whole tensor
    int64_t count = 0;
  };
  // Returns the longest run that starts at element `element` of the slice.
  Run run_from(int64_t element) const;
  // Returns how many elements of the slice precede element `whole_element` of the whole tensor.
  int64_t count_before(int64_t whole_element) const;
  bool overlaps(const Slice& other) const;
  // Returns the same slice of a smaller tensor that has one element for each block of `block`
  // consecutive elements of the whole tensor. The trailing dimensions that make up a block are
  // merged into one. If all dimensions together are smaller than a block, the result has one
  // dimension, and its last block is smaller. Returns nothing if the slice cuts a block.
  std::optional<Slice> in_blocks(int64_t block) const;

  bool operator==(const Slice&) const = default;

 private:
  std::vector<int64_t> whole_;
  std::vector<Ranges> ranges_;
  std::vector<int64_t> shape_;
  int64_t count_ = 1;
};

// Returns the slice as text: "0:2+4:5, 0:4".
std::string to_text(const Slice& slice);

// Calls visit(run, element) for each run of elements [first, first + count) of the slice; `element`
// is the index of the run's first element, counted from `first`.
template <typename Visit>
void for_each_run(const Slice& slice, int64_t first, int64_t count, const Visit& visit) {
  for (int64_t done = 0; done < count;) {
    Slice::Run run = slice.run_from(first + done);
    if (run.count > count - done) run.count = count - done;
    visit(run, done);
    done += run.count;
  }
}

// One part of an even division of `count` items into `parts`. Sizes of parts differ by at most 1.
// If `parts` divides a larger number of parts, each part of the finer division is inside one part
// of the coarser division.
struct Share {
  int64_t first = 0;
  int64_t count = 0;
};
constexpr Share even_share(int64_t count, int64_t place, int64_t parts) {
  const int64_t first = count * place / parts;
  return {first, count * (place + 1) / parts - first};
}

// Division of a dimension over the ranks along an axis: each rank gets an even share, in rank
// order.
struct Cut {
  Axis axis = Axis::tensor;
  int dimension = 0;
  // Sizes of parts that are packed along the dimension (queries, keys and values). Each part is
  // divided separately. Empty: the dimension is one part.
  std::vector<int64_t> parts = {};
};

// The one rank along some axes that has a parameter; the other ranks have no element of it.
struct SoleOwner {
  AxisSet axes;
  int number = 0;  // MeshPlace::number_along(axes) of the owner
};

// A parameter's layout on a mesh. The parameter is replicated along every axis that does not divide
// it.
struct Placement {
  std::vector<Cut> cuts = {};
  // Additional axes over which the gradient is summed, because each rank along these axes computes
  // a term of the gradient. Along all other axes, except the batch axes, all ranks compute the same
  // gradient.
  AxisSet partial = {};
  // Owner of an expert's parameter. The owner computes with the rows of all ranks along owner.axes.
  SoleOwner owner = {};

  // Returns the axes along which ranks have different parts, or only one rank has the parameter.
  AxisSet cut_over() const;
  // Returns the axes over which gradients are summed.
  AxisSet summed_over() const { return kBatchAxes.without(cut_over()) | partial; }
  bool is_whole() const { return cuts.empty() && partial.empty() && owner.axes.empty(); }
};

// Returns the slice of the rank at `place`; it is empty on ranks that do not own the parameter.
// Throws Error(invalid_argument) for an invalid placement: a dimension or axis that is divided
// twice, a division over another axis than tensor, parts that do not add up to the dimension, a
// partial sum over another axis than tensor or over an axis that divides the parameter, an owner
// that does not exist, an owner along the pipeline axis, or an owner of a scalar.
Slice slice_of(const std::vector<int64_t>& shape, const Placement& placement,
               const MeshPlace& place);

}  // namespace tutti::training
