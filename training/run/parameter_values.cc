#include "training/run/parameter_values.h"

#include <algorithm>

#include "base/reduce_op.h"
#include "training/kernels/elementwise.h"

namespace tutti::training {

const ParameterSpec& ParameterValues::spec(int parameter) const {
  return specs()[static_cast<size_t>(parameter)];
}

bool ParameterValues::has(int parameter) const {
  return replica_.storage().layout().slots[static_cast<size_t>(parameter)].parameter >= 0;
}

Memory<float> ParameterValues::in_place(int parameter) {
  replica_.finish_values();
  if (!spec(parameter).slice().is_whole()) return nullptr;
  return replica_.storage().updated_whole(parameter);
}

// Calls use(elements, index of the first element in the whole parameter) for each run of elements
// that this rank owns.
template <typename Use>
void ParameterValues::with_owned(int parameter, const Use& use) {
  replica_.finish_values();
  const Slice slice = spec(parameter).slice();
  for (const OwnedPiece& piece : replica_.owned()) {
    if (piece.piece.parameter != parameter) continue;
    for_each_run(slice, piece.piece.first, piece.piece.count,
                 [&](const Slice::Run& run, int64_t at) {
                   use(piece.updated().col_range(at, run.count), run.whole);
                 });
  }
}

void ParameterValues::read(int parameter, std::span<float> values) {
  std::ranges::fill(values, 0.0F);
  with_owned(parameter, [&](Tensor owned, int64_t first) {
    convert(owned, tensor_at(values.data() + first, DType::f32, 1, owned.cols));
  });
  // The parts of other ranks are zero bits here, so a bitwise or joins the parts exactly.
  const Buffer bits{values.data(), values.size(), DType::u32};
  const auto join = [&](Communicator& ranks) {
    ranks.all_reduce(as_const(bits), bits, ReduceOp::bor);
  };
  if (replica_.sharded()) {
    const ParameterStorage& storage = replica_.storage();
    Communicator ranks =
        storage.ranks_of(storage.layout().slots[static_cast<size_t>(parameter)].bucket);
    join(ranks);
  }
  const AxisSet cut = spec(parameter).placement.cut_over();
  if (!cut.empty()) join(replica_.mesh().group(cut));
}

void ParameterValues::write(int parameter, std::span<const float> values) {
  const auto part = [&](int64_t first, int64_t count) {
    return tensor_at(static_cast<const void*>(values.data() + first), DType::f32, 1, count);
  };
  with_owned(parameter,
             [&](Tensor owned, int64_t first) { convert(part(first, owned.cols), owned); });
  for (const OwnedPiece& piece : replica_.owned()) {
    if (piece.piece.parameter == parameter) store_masters(piece);
  }
  if (!replica_.storage().whole_values()) {
    replica_.publish();  // drops resident buckets, which are then gathered again
    return;
  }
  // Writes all parts, because other ranks' parts would be gathered only with the next update.
  const Tensor all = model_.parameters().at(parameter).value;
  const Tensor row = all.reshaped(1, all.size());
  for_each_run(spec(parameter).slice(), 0, row.cols, [&](const Slice::Run& run, int64_t at) {
    convert(part(run.whole, run.count), row.col_range(at, run.count));
  });
}

}  // namespace tutti::training
