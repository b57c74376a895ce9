#include "training/parallel/averaging/centred.h"

#include <utility>

namespace tutti::training {

Centred::Centred(ParameterStorage& storage, const SyncOptions& options)
    : Averaging(storage, options), values_(storage), centre_(allocate_row()) {}

Memory<float> Centred::allocate_row() {
  return ranks().allocate<float>(static_cast<size_t>(count()));
}

void Centred::publish_values() {
  if (std::exchange(loaded_, false)) return;
  values_.read(0, centre());
}

void Centred::visit_row(StateVisitor& visitor, const char* name, std::span<float> row) const {
  visitor.row(name, tensor_at(row.data(), DType::f32, 1, count()), RowKind::same);
}

void Centred::visit_state(StateVisitor& visitor) {
  Averaging::visit_state(visitor);
  if (!takes_own_values() || !visitor.has("sync.outer")) return;
  visit_row(visitor, "sync.outer", centre());
  loaded_ = !visitor.saves();
}

}  // namespace tutti::training
