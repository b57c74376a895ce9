#include "training/parallel/convert_layout.h"

#include <optional>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "training/kernels/elementwise.h"
#include "training/parallel/axis_call.h"
#include "training/parallel/sum_in_order.h"

namespace tutti::training {
namespace {

// Converts a tensor that the ranks along one axis share.
class Line {
 public:
  Line(Pass& pass, const MeshPlace& place, Axis axis, const WholeShape& whole)
      : call_(pass, place, axis), whole_(whole) {}

  Share own_rows() const { return rows_of(call_.place()); }
  Share own_columns() const { return columns_of(call_.place()); }

  Tensor gathered_rows(ConstTensor own) {
    const Tensor all = arena().take(own.dtype, whole_.rows, own.cols);
    call_.count("all_gather", all);
    if (alone()) {
      zero(all);
      copy(own, all.row_range(own_rows().first, own.rows));
    } else {
      ranks().all_gatherv(as_buffer(own), as_buffer(all),
                          call_.blocks([&](int rank) { return rows_of(rank).count * own.cols; }));
    }
    return all;
  }

  Tensor gathered_columns(ConstTensor own) {
    const Tensor all = arena().take(own.dtype, own.rows, whole_.cols);
    const ArenaScope scope(arena());
    const Tensor parts = arena().take(own.dtype, 1, all.size());
    call_.count("all_gather", all);
    if (alone()) {
      zero(all);
      copy_rows(own, all.col_range(own_columns().first, own.cols));
      return all;
    }
    const Blocks cut = call_.blocks([&](int rank) { return columns_of(rank).count * own.rows; });
    ranks().all_gatherv(as_buffer(own), as_buffer(parts), cut);
    unpack_columns(parts, all);
    return all;
  }

  // Converts this rank's rows, with all columns, to all rows of this rank's columns (all-to-all).
  Tensor rows_to_columns(ConstTensor own) {
    const int64_t columns = own_columns().count;
    const Tensor result = arena().take(own.dtype, whole_.rows, columns);
    const ArenaScope scope(arena());
    const Tensor parts = arena().take(own.dtype, 1, own.size());
    int64_t at = 0;
    for (int rank = 0; rank < call_.size(); ++rank) {
      const auto [first, count] = columns_of(rank);
      copy_rows(own.col_range(first, count),
                parts.col_range(at, own.rows * count).reshaped(own.rows, count));
      at += own.rows * count;
    }
    exchange(
        parts, [&](int rank) { return columns_of(rank).count * own.rows; }, result,
        [&](int rank) { return rows_of(rank).count * columns; });
    return result;
  }

  Tensor columns_to_rows(ConstTensor own) {
    const int64_t rows = own_rows().count;
    const Tensor result = arena().take(own.dtype, rows, whole_.cols);
    const ArenaScope scope(arena());
    const Tensor parts = arena().take(own.dtype, 1, result.size());
    exchange(
        own, [&](int rank) { return rows_of(rank).count * own.cols; }, parts,
        [&](int rank) { return columns_of(rank).count * rows; });
    unpack_columns(parts, result);
    return result;
  }

  // Replaces the tensor by its sum over the ranks.
  Tensor summed(Tensor tensor) {
    const bool in_order = call_.pass().slices > 1;
    if (alone()) {
      call_.count("all_reduce", tensor, 2);
    } else if (in_order) {
      const Tensor own = summed_rows(tensor);
      ranks().all_gatherv(as_const(as_buffer(own)), as_buffer(tensor), row_blocks(tensor.cols));
      call_.count("all_reduce", tensor);
    } else {
      ranks().all_reduce(as_const(as_buffer(tensor)), as_buffer(tensor));
      call_.count("all_reduce", tensor, 2);
    }
    return tensor;
  }

  void take_largest(Tensor tensor) {
    call_.count("all_reduce", tensor, 2);
    if (!alone()) ranks().all_reduce(as_const(as_buffer(tensor)), as_buffer(tensor), ReduceOp::max);
  }

  // Replaces this rank's rows of the tensor by their sum over the ranks, and returns them.
  Tensor summed_rows(Tensor tensor) {
    const Tensor own = tensor.row_range(own_rows().first, own_rows().count);
    call_.count("reduce_scatter", tensor);
    if (alone()) return own;
    if (call_.pass().slices > 1) {
      sum_in_order(arena(), ranks(), tensor, row_blocks(tensor.cols), own);
    } else {
      ranks().reduce_scatterv(as_const(as_buffer(tensor)), as_buffer(own), row_blocks(tensor.cols));
    }
    return own;
  }

 private:
  bool alone() const { return call_.alone(); }
  Communicator& ranks() const { return call_.ranks(); }
  Arena& arena() const { return call_.pass().arena; }
  Share rows_of(int rank) const { return even_share(whole_.rows, rank, call_.size()); }
  Share columns_of(int rank) const { return even_share(whole_.cols, rank, call_.size()); }

  Blocks row_blocks(int64_t cols) const {
    return call_.blocks([&](int rank) { return rows_of(rank).count * cols; });
  }

  template <typename Sent, typename Received>
  void exchange(ConstTensor from, const Sent& sent, Tensor to, const Received& received) {
    call_.count("all_to_all", from);
    if (alone()) return zero(to);
    ranks().all_to_allv(as_buffer(from), call_.blocks(sent), as_buffer(to), call_.blocks(received));
  }

  // Copies each rank's columns, which are consecutive blocks in `parts`, to their place in `all`.
  void unpack_columns(ConstTensor parts, Tensor all) const {
    int64_t at = 0;
    for (int rank = 0; rank < call_.size(); ++rank) {
      const auto [first, count] = columns_of(rank);
      copy_rows(parts.col_range(at, all.rows * count).reshaped(all.rows, count),
                all.col_range(first, count));
      at += all.rows * count;
    }
  }

  AxisCall call_;
  WholeShape whole_;
};

std::optional<Axis> changed_axis(const ActivationLayout& from, const ActivationLayout& to) {
  std::optional<Axis> changed;
  for (const Axis axis : kAllAxes) {
    if (from.along(axis) == to.along(axis)) continue;
    if (changed) {
      throw Error(ErrorCode::internal, "a layout conversion changes two axes at once");
    }
    changed = axis;
  }
  return changed;
}

// Converts a tensor that is not partial.
template <bool is_const>
BasicTensor<is_const> moved(Line& line, BasicTensor<is_const> tensor, Spread from, Spread to) {
  if (from == Spread::replicated && to == Spread::rows) {
    return tensor.row_range(line.own_rows().first, line.own_rows().count);
  }
  if (from == Spread::replicated && to == Spread::columns) {
    return tensor.col_range(line.own_columns().first, line.own_columns().count);
  }
  if (from == Spread::rows && to == Spread::replicated) return line.gathered_rows(tensor);
  if (from == Spread::columns && to == Spread::replicated) return line.gathered_columns(tensor);
  if (from == Spread::rows && to == Spread::columns) return line.rows_to_columns(tensor);
  if (from == Spread::columns && to == Spread::rows) return line.columns_to_rows(tensor);
  throw Error(ErrorCode::internal, "there is no conversion between these layouts");
}

}  // namespace

ConstTensor convert_layout(Pass& pass, const MeshPlace& place, ConstTensor tensor,
                           const WholeShape& whole, const ActivationLayout& from,
                           const ActivationLayout& to) {
  const std::optional<Axis> axis = changed_axis(from, to);
  if (!axis || place.size(*axis) == 1) return tensor;
  Line line(pass, place, *axis, whole);
  return moved(line, tensor, from.along(*axis), to.along(*axis));
}

Tensor convert_layout(Pass& pass, const MeshPlace& place, Tensor tensor, const WholeShape& whole,
                      const ActivationLayout& from, const ActivationLayout& to) {
  const std::optional<Axis> axis = changed_axis(from, to);
  if (!axis || place.size(*axis) == 1) return tensor;
  Line line(pass, place, *axis, whole);
  const Spread wanted = to.along(*axis);
  if (from.along(*axis) != Spread::partial) return moved(line, tensor, from.along(*axis), wanted);
  if (wanted == Spread::rows) return line.summed_rows(tensor);
  const Tensor sum = line.summed(tensor);
  return wanted == Spread::replicated ? sum : moved(line, sum, Spread::replicated, wanted);
}

void largest_over_ranks(Pass& pass, const MeshPlace& place, Axis axis, Tensor tensor) {
  if (place.size(axis) == 1) return;
  Line(pass, place, axis, {tensor.rows, tensor.cols}).take_largest(tensor);
}

}  // namespace tutti::training
