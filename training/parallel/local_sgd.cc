#include "training/parallel/local_sgd.h"

#include "base/reduce_op.h"

namespace tutti::training {

using Clock = std::chrono::steady_clock;

LocalSgd::LocalSgd(ParameterStorage& storage, int64_t every)
    : storage_(storage), ranks_(storage.groups().ranks.front()), every_(every) {}

void LocalSgd::after_update() {
  if (++updates_ < every_) return;
  updates_ = 0;
  const Clock::time_point start = Clock::now();
  for (const OwnedPiece& piece : storage_.owned()) {
    const Clock::time_point from = Clock::now();
    ranks_.all_reduce(piece.master, ReduceOp::avg);
    store_masters(piece);
    if (observer_) observer_("all_reduce", piece.piece.bucket, from, Clock::now());
    bytes_sent_ +=
        2 * static_cast<double>(piece.master.size_bytes()) * (ranks_.size() - 1) / ranks_.size();
  }
  waited_ += Clock::now() - start;
}

void LocalSgd::visit_state(StateVisitor& visitor) {
  visitor.number("local_sgd.updates", updates_, int64_t{0});
}

}  // namespace tutti::training
