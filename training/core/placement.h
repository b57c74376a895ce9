// Which elements of a tensor a rank has, and where they lie in the whole: the one description that
// initial values, gradient norms, checkpoints, import and export read.
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

// Of each dimension of a tensor some ranges of indices; their product.
class Slice {
 public:
  struct Range {
    int64_t begin = 0;
    int64_t end = 0;
    bool operator==(const Range&) const = default;
  };
  using Ranges = std::vector<Range>;  // ascending, none empty, with gaps between them

  // All of it.
  explicit Slice(std::vector<int64_t> shape);
  // One list for each dimension. Throws Error(invalid_argument) unless they are as said above and
  // inside of the shape.
  Slice(std::vector<int64_t> shape, std::vector<Ranges> ranges);

  const std::vector<int64_t>& whole_shape() const { return whole_; }
  const std::vector<Ranges>& ranges() const { return ranges_; }
  // Of the slice.
  const std::vector<int64_t>& shape() const { return shape_; }
  int64_t count() const { return count_; }
  bool is_whole() const { return shape_ == whole_; }

  // Neighbours both in the slice and in the whole.
  struct Run {
    int64_t whole = 0;  // the first one's element of the whole
    int64_t count = 0;
  };
  // As many as there are from `element` of the slice on, which it has.
  Run run_from(int64_t element) const;
  // How many of its elements lie before this one of the whole.
  int64_t count_before(int64_t whole_element) const;
  bool overlaps(const Slice& other) const;
  // The same slice of the tensor that has an element for each block of `block` neighbours of the
  // whole. Its shape follows from the whole's: as many of the last dimensions as make up blocks
  // become one; if all do not, it has one dimension, and the last block is smaller. None where the
  // slice cuts a block.
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

// visit(run, element) for the runs that elements [first, first + count) of the slice consist of,
// where `element` is the run's first one, counted from `first`.
template <typename Visit>
void for_each_run(const Slice& slice, int64_t first, int64_t count, const Visit& visit) {
  for (int64_t done = 0; done < count;) {
    Slice::Run run = slice.run_from(first + done);
    if (run.count > count - done) run.count = count - done;
    visit(run, done);
    done += run.count;
  }
}

// Which of `count` things the one at `place` of `parts` has: sizes differ by 1 at most, and the
// parts of a finer cut lie in those of a coarser one that divides it.
struct Share {
  int64_t first = 0;
  int64_t count = 0;
};
constexpr Share even_share(int64_t count, int64_t place, int64_t parts) {
  const int64_t first = count * place / parts;
  return {first, count * (place + 1) / parts - first};
}

// A dimension that is cut over the ranks along an axis, in their order, into even shares.
struct Cut {
  Axis axis = Axis::tensor;
  int dimension = 0;
  // Parts that are packed along the dimension (queries, keys and values), each of which is cut by
  // itself. Empty: the dimension is one.
  std::vector<int64_t> parts = {};
};

// The one rank along some axes that has a parameter; the others have no element of it.
struct SoleOwner {
  AxisSet axes;
  int number = 0;  // MeshPlace::number_along(axes)
};

// How a parameter lies on a mesh. Along axes that it is not cut over all ranks have the same of it.
struct Placement {
  std::vector<Cut> cuts = {};
  // Axes along which each rank computes a part of the gradient, as along the data axis: it is
  // summed over these too. Along the others all ranks have computed the same.
  AxisSet partial = {};
  // An expert's owner, which computes with rows of all ranks along these axes.
  SoleOwner owner = {};

  // The axes along which ranks have different parts, or only one of them has it.
  AxisSet cut_over() const;
  // The axes over which the gradients of different ranks are summed.
  AxisSet summed_over() const { return kBatchAxes.without(cut_over()) | partial; }
  bool is_whole() const { return cuts.empty() && partial.empty() && owner.axes.empty(); }
};

// The slice of the rank at `place`; of ranks that are not the owner an empty one. Throws
// Error(invalid_argument) where the placement makes no sense: a dimension or an axis that is cut
// twice, a cut over another axis than tensor, parts that are not the dimension, a partial sum over
// an axis of the batch or one that is cut, an owner along the pipeline axis.
Slice slice_of(const std::vector<int64_t>& shape, const Placement& placement,
               const MeshPlace& place);

}  // namespace tutti::training
