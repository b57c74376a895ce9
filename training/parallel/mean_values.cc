#include "training/parallel/mean_values.h"

#include <algorithm>
#include <cstdint>

#include "base/reduce_op.h"
#include "training/kernels/elementwise.h"

namespace tutti::training {

MeanValues::MeanValues(ParameterStorage& storage, Communicator ranks, std::span<const float> shared)
    : storage_(storage) {
  size_t size = 0;
  for (const OwnedPiece& piece : storage_.owned()) {
    offsets_.push_back(size);
    size += static_cast<size_t>(piece.updated().bytes());
  }
  bytes_.resize(size);
  if (!shared.empty()) {
    std::ranges::copy(std::as_bytes(shared), bytes_.begin());
    return;
  }
  for (const OwnedPiece& piece : storage_.owned()) {
    ranks.all_reduce(as_const(as_buffer(piece.updated())), as_buffer(of(piece)), ReduceOp::avg);
  }
}

Tensor MeanValues::of(const OwnedPiece& piece) {
  const auto index = static_cast<size_t>(&piece - storage_.owned().data());
  Tensor mean = piece.updated();
  mean.data = bytes_.data() + offsets_[index];
  return mean;
}

void MeanValues::exchange() {
  for (const OwnedPiece& piece : storage_.owned()) {
    const Tensor own = piece.updated();
    std::swap_ranges(own.data, own.data + own.bytes(), of(piece).data);
    store_masters(piece);
  }
}

}  // namespace tutti::training
