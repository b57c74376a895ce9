#include "training/parallel/averaging/averaging.h"

#include <algorithm>

#include "base/error.h"
#include "base/reduce_op.h"
#include "base/text.h"
#include "training/parallel/averaging/ad_psgd.h"
#include "training/parallel/averaging/diloco.h"
#include "training/parallel/averaging/easgd.h"
#include "training/parallel/averaging/federated.h"
#include "training/parallel/averaging/gossip.h"
#include "training/parallel/averaging/local_sgd.h"
#include "training/parallel/averaging/push_sum.h"
#include "training/parallel/averaging/value_row.h"

namespace tutti::training {

Averaging::Averaging(ParameterStorage& storage, const SyncOptions& options)
    : storage_(storage), options_(options), ranks_(storage.groups().ranks.front()) {}

void Averaging::after_update() { exchange(++updates_); }

// Defaults for older checkpoints: if there is no count of updates, each step made one; if there is
// no kind, the run used local SGD.
void Averaging::visit_state(StateVisitor& visitor) {
  visitor.number("sync.updates", updates_, visitor.step());
  auto kind = static_cast<int64_t>(options_.kind);
  visitor.number("sync.kind", kind, static_cast<int64_t>(SyncKind::local));
  int64_t stages = options_.worker_stages;
  int64_t tensor_ranks = options_.worker_tensor_ranks;
  visitor.number("sync.stages", stages, int64_t{1});
  visitor.number("sync.tensor_ranks", tensor_ranks, int64_t{1});
  same_way_ = kind == static_cast<int64_t>(options_.kind) && stages == options_.worker_stages &&
              tensor_ranks == options_.worker_tensor_ranks;
}

int64_t Averaging::bytes() const {
  const int64_t values = ValueRow(storage_).size();
  return copies_of_values(options_) * values * static_cast<int64_t>(sizeof(float));
}

void Averaging::average(Buffer buffer) { all_reduce(buffer, ReduceOp::avg); }

void Averaging::all_reduce(Buffer buffer, ReduceOp op) {
  const Waiting waiting(*this);
  ranks_.all_reduce(buffer, buffer, op, {.deterministic = is_divided()});
  count_all_reduce(buffer.count * size_of(buffer.dtype));
}

void Averaging::average_pair(std::span<float> own, std::span<const float> other) {
  std::ranges::transform(own, other, own.begin(), [](float a, float b) { return (a + b) / 2; });
}

void Averaging::count_all_reduce(uint64_t bytes) {
  bytes_sent_ += 2 * static_cast<double>(bytes) * (ranks_.size() - 1) / ranks_.size();
}

void Averaging::exchange_rows(std::span<const float> row, int to, std::span<float> other,
                              int from) {
  const Waiting waiting(*this);
  Work received = ranks_.recv_async({other.data(), other.size(), DType::f32}, from);
  send_async(row, to).wait();
  received.wait();
}

Work Averaging::send_async(std::span<const float> row, int to) {
  count_sent(row.size_bytes());
  return ranks_.send_async({row.data(), row.size(), DType::f32}, to);
}

void Averaging::observe_span(const char* what, int part,
                             std::chrono::steady_clock::time_point from) const {
  if (observer_) observer_(what, part, from, std::chrono::steady_clock::now());
}

std::unique_ptr<Synchronizer> make_averaging(ParameterStorage& storage, const SyncOptions& options,
                                             uint64_t seed) {
  switch (options.kind) {
    case SyncKind::local:
      return std::make_unique<LocalSgd>(storage, options);
    case SyncKind::diloco:
      return std::make_unique<DiLoCo>(storage, options);
    case SyncKind::gossip:
      return std::make_unique<Gossip>(storage, options, seed);
    case SyncKind::async_gossip:
      return std::make_unique<AdPsgd>(storage, options, seed);
    case SyncKind::push_sum:
      return std::make_unique<PushSum>(storage, options, seed);
    case SyncKind::easgd:
      return std::make_unique<Easgd>(storage, options);
    case SyncKind::fedavg:
    case SyncKind::fedprox:
    case SyncKind::fedadam:
      return std::make_unique<Federated>(storage, options, seed);
    case SyncKind::allreduce:
    case SyncKind::server:
    case SyncKind::stale:
    case SyncKind::async:
      break;
  }
  throw Error(ErrorCode::internal, cat(text_of(options), " does not average values"));
}

}  // namespace tutti::training
