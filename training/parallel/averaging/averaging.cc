#include "training/parallel/averaging/averaging.h"

#include "base/error.h"
#include "training/parallel/averaging/diloco.h"
#include "training/parallel/averaging/gossip.h"
#include "training/parallel/averaging/local_sgd.h"
#include "training/parallel/averaging/push_sum.h"

namespace tutti::training {

Averaging::Averaging(ParameterStorage& storage)
    : storage_(storage), ranks_(storage.groups().ranks.front()) {}

void Averaging::after_update() {
  const Waiting waiting(*this);
  exchange(++updates_);
}

// In a checkpoint that does not say, each step made one.
void Averaging::visit_state(StateVisitor& visitor) {
  visitor.number("sync.updates", updates_, visitor.step());
}

void Averaging::count_all_reduce(int64_t values, WireFormat wire) {
  const auto bytes = static_cast<double>(bytes_of(wire, static_cast<uint64_t>(values)));
  bytes_sent_ += 2 * bytes * (ranks_.size() - 1) / ranks_.size();
}

void Averaging::trade(std::span<const float> row, int to, std::span<float> other, int from) {
  Work received = ranks_.recv_async({other.data(), other.size(), DType::f32}, from);
  send(row, to).wait();
  received.wait();
}

Work Averaging::send(std::span<const float> row, int to) {
  bytes_sent_ += static_cast<double>(row.size_bytes());
  return ranks_.send_async({row.data(), row.size(), DType::f32}, to);
}

void Averaging::tell(const char* what, int part, std::chrono::steady_clock::time_point from) const {
  if (observer_) observer_(what, part, from, std::chrono::steady_clock::now());
}

std::unique_ptr<Synchronizer> make_averaging(ParameterStorage& storage, const SyncOptions& options,
                                             uint64_t seed) {
  switch (options.kind) {
    case SyncKind::local:
      return std::make_unique<LocalSgd>(storage, options.every, options.local_after);
    case SyncKind::diloco:
      return std::make_unique<DiLoCo>(storage, options);
    case SyncKind::gossip:
      return std::make_unique<Gossip>(storage, options.graph, seed);
    case SyncKind::push_sum:
      return std::make_unique<PushSum>(storage, options.graph, seed);
    case SyncKind::allreduce:
      break;
  }
  throw Error(ErrorCode::internal, "sums of gradients are no averages of values");
}

}  // namespace tutti::training
