#include "training/parallel/averaging/local_sgd.h"

#include "base/reduce_op.h"

namespace tutti::training {

using Clock = std::chrono::steady_clock;

LocalSgd::LocalSgd(ParameterStorage& storage, int64_t every, int64_t after)
    : Averaging(storage), every_(every), after_(after) {}

void LocalSgd::finish_gradients() {
  if (updates() >= after_) return;
  const Waiting waiting(*this);
  for (size_t bucket = 0; bucket < storage().layout().buckets.size(); ++bucket) {
    const Clock::time_point from = Clock::now();
    const Tensor gradients = storage().gradients(static_cast<int>(bucket));
    ranks().all_reduce(as_const(as_buffer(gradients)), as_buffer(gradients), ReduceOp::avg);
    count_all_reduce(gradients.cols);
    tell("all_reduce", static_cast<int>(bucket), from);
  }
}

void LocalSgd::exchange(int64_t update) {
  if (update <= after_ || (update - after_) % every_ != 0) return;
  for (const OwnedPiece& piece : storage().owned()) {
    const Clock::time_point from = Clock::now();
    ranks().all_reduce(piece.master, ReduceOp::avg);
    store_masters(piece);
    count_all_reduce(piece.piece.count);
    tell("all_reduce", piece.piece.bucket, from);
  }
}

}  // namespace tutti::training
