// The elements of a tensor that a rank has, and their location in the whole: the one description
// that initial values, gradient norms, checkpoints, import and export read.
//
// A tensor of 6 x 4 whose rows are two packed parts of 4 and 2, cut over 2 ranks:
//
//   rows 0 1   rank 0        rank 0's slice: rows [0, 2) and [4, 5), all columns
//        2 3   rank 1        its elements, in row-major order, are the whole's elements
//        4     rank 0          0 to 7        -> 0 to 7
//        5     rank 1          8 to 11       -> 16 to 19
//
// Elements of a slice have the order that they have in the whole.
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
  using Ranges = std::vector<Range>;  // ascending, none empty, with gaps between them

  // The whole tensor.
  explicit Slice(std::vector<int64_t> shape);
  // `ranges` has one list for each dimension. Throws Error(invalid_argument) unless each list is
  // ascending with gaps and inside of the shape.
  Slice(std::vector<int64_t> shape, std::vector<Ranges> ranges);

  const std::vector<int64_t>& whole_shape() const { return whole_; }
  const std::vector<Ranges>& ranges() const { return ranges_; }
  // Shape of the slice itself.
  const std::vector<int64_t>& shape() const { return shape_; }
  int64_t count() const { return count_; }
  bool is_whole() const { return shape_ == whole_; }

  // Elements that are consecutive both in the slice and in the whole.
  struct Run {
    int64_t whole = 0;  // index of the first one, in the whole
    int64_t count = 0;
  };
  // The longest run that starts at `element` of the slice.
  Run run_from(int64_t element) const;
  // Number of the slice's elements that precede this element of the whole.
  int64_t count_before(int64_t whole_element) const;
  bool overlaps(const Slice& other) const;
  // The same slice of a tensor that has one element for each block of `block` consecutive elements
  // of the whole. The trailing dimensions that make up a block are merged into one; if all
  // dimensions together do not, the result has one dimension, and its last block is smaller. None
  // if the slice cuts a block.
  std::optional<Slice> in_blocks(int64_t block) const;

  bool operator==(const Slice&) const = default;

 private:
  std::vector<int64_t> whole_;
  std::vector<Ranges> ranges_;
  std::vector<int64_t> shape_;
  int64_t count_ = 1;
};

// "0:2+4:5, 0:4".
std::string to_text(const Slice& slice);

// Calls visit(run, element) for each run of elements [first, first + count) of the slice, where
// `element` is the index of the run's first element, counted from `first`.
template <typename Visit>
void for_each_run(const Slice& slice, int64_t first, int64_t count, const Visit& visit) {
  for (int64_t done = 0; done < count;) {
    Slice::Run run = slice.run_from(first + done);
    if (run.count > count - done) run.count = count - done;
    visit(run, done);
    done += run.count;
  }
}

// Even division of `count` items into `parts`: sizes differ by at most 1, and the parts of a finer
// division are inside of those of a coarser one that divides it.
struct Share {
  int64_t first = 0;
  int64_t count = 0;
};
constexpr Share even_share(int64_t count, int64_t place, int64_t parts) {
  const int64_t first = count * place / parts;
  return {first, count * (place + 1) / parts - first};
}

// A dimension that is divided over the ranks along an axis, in their order, into even shares.
struct Cut {
  Axis axis = Axis::tensor;
  int dimension = 0;
  // Sizes of the parts that are packed along the dimension (queries, keys and values), each of
  // which is cut by itself. Empty: the dimension is one part.
  std::vector<int64_t> parts = {};
};

// The one rank along some axes that has a parameter; the others have no element of it.
struct SoleOwner {
  AxisSet axes;
  int number = 0;  // MeshPlace::number_along(axes)
};

// A parameter's layout on a mesh. It is replicated along the axes that do not cut it.
struct Placement {
  std::vector<Cut> cuts = {};
  // Axes besides the data axis along which each rank computes a part of the gradient: the gradient
  // is summed over these too. Along other axes all ranks compute the same gradient.
  AxisSet partial = {};
  // Owner of an expert, which computes with rows of all ranks along these axes.
  SoleOwner owner = {};

  // The axes along which ranks have different parts, or only one rank has the parameter.
  AxisSet cut_over() const;
  // The axes over which the gradients of different ranks are summed.
  AxisSet summed_over() const { return kBatchAxes.without(cut_over()) | partial; }
  bool is_whole() const { return cuts.empty() && partial.empty() && owner.axes.empty(); }
};

// Returns the slice of the rank at `place`; it is empty on ranks that are not the owner. Throws
// Error(invalid_argument) for an invalid placement: a dimension or an axis that is cut twice, a cut
// over another axis than tensor, parts that do not add up to the dimension, a partial sum over an
// axis of the batch or one that is cut, an owner along the pipeline axis.
Slice slice_of(const std::vector<int64_t>& shape, const Placement& placement,
               const MeshPlace& place);

}  // namespace tutti::training
