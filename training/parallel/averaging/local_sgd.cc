#include "training/parallel/averaging/local_sgd.h"

namespace tutti::training {

using Clock = std::chrono::steady_clock;

void LocalSgd::finish_gradients() {
  if (updates() >= options().local_after) return;
  for (size_t bucket = 0; bucket < storage().layout().buckets.size(); ++bucket) {
    const Clock::time_point from = Clock::now();
    average(as_buffer(storage().gradients(static_cast<int>(bucket))));
    observe_span("all_reduce", static_cast<int>(bucket), from);
  }
}

void LocalSgd::visit_state(StateVisitor& visitor) {
  Averaging::visit_state(visitor);
  read_local_after_ = options().local_after;
  visitor.number("sync.local_after", read_local_after_, int64_t{0});
}

void LocalSgd::exchange(int64_t update) {
  const int64_t local_updates = update - options().local_after;
  if (local_updates <= 0 || local_updates % options().every != 0) return;
  for (const OwnedPiece& piece : storage().owned()) {
    const Clock::time_point from = Clock::now();
    average({piece.master.data(), piece.master.size(), DType::f32});
    store_masters(piece);
    observe_span("all_reduce", piece.piece.bucket, from);
  }
}

}  // namespace tutti::training
