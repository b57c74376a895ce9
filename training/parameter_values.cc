#include "training/parameter_values.h"

#include <algorithm>

#include "base/reduce_op.h"
#include "training/kernels/elementwise.h"

namespace tutti::training {

bool ParameterValues::has(int parameter) const {
  return replica_.storage().layout().slots[static_cast<size_t>(parameter)].parameter >= 0;
}

Memory<float> ParameterValues::in_place(int parameter) {
  replica_.finish_values();
  return replica_.storage().updated_whole(parameter);
}

// use(the piece, its first element) for this rank's pieces of the parameter.
template <typename Use>
void ParameterValues::with_owned(int parameter, const Use& use) {
  replica_.finish_values();
  for (const OwnedPiece& piece : replica_.owned()) {
    if (piece.piece.parameter == parameter) use(piece, piece.piece.first);
  }
}

void ParameterValues::read(int parameter, std::span<float> values) {
  std::ranges::fill(values, 0.0F);
  with_owned(parameter, [&](const OwnedPiece& piece, int64_t first) {
    convert(piece.updated(), tensor_at(values.data() + first, DType::f32, 1, piece.piece.count));
  });
  if (!reads_together()) return;
  // Others' parts are zero bits here, so this joins the parts, to the bit.
  const Buffer bits{values.data(), values.size(), DType::u32};
  replica_.group().all_reduce(as_const(bits), bits, ReduceOp::bor);
}

void ParameterValues::write(int parameter, std::span<const float> values) {
  const auto part = [&](int64_t first, int64_t count) {
    return tensor_at(static_cast<const void*>(values.data() + first), DType::f32, 1, count);
  };
  with_owned(parameter, [&](const OwnedPiece& piece, int64_t first) {
    convert(part(first, piece.piece.count), piece.updated());
    store_masters(piece);
  });
  if (!replica_.storage().whole_values()) {
    replica_.publish();  // buckets that are still here are gathered anew
    return;
  }
  // The other ranks' parts, which would come with the next update only.
  const Tensor whole = model_.parameters().at(parameter).value;
  convert(part(0, whole.size()), tensor_at(whole.data, whole.dtype, 1, whole.size()));
}

}  // namespace tutti::training
