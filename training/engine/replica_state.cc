// State that a replica keeps from step to step, for checkpoints and copies in memory.

#include <string>

#include "training/checkpoint/tensor_source.h"
#include "training/engine/replica.h"

namespace tutti::training {

std::vector<std::string> Replica::kinds() const {
  std::vector<std::string> kinds = updater_.kinds();
  kinds.insert(kinds.begin(), "model");
  return kinds;
}

Tensor Replica::values_of(const OwnedPiece& piece, size_t kind) const {
  return kind == 0 ? piece.updated() : updater_.state_of(piece, kind - 1);
}

void Replica::visit_state(StateVisitor& visitor) {
  finish_values();
  // The mean that is saved stays in memory until the next step.
  if (visitor.saves() && !synchronizer_->sums_gradients()) {
    mean_.emplace(storage_, group_, synchronizer_->shared_values());
  }
  visitor.pieces("model", [&](const OwnedPiece& piece) {
    return visitor.saves() && mean_ ? mean_->of(piece) : piece.updated();
  });
  updater_.visit_state(visitor);
  synchronizer_->visit_state(visitor);
  if (!synchronizer_->sums_gradients() && synchronizer_->takes_own_values()) {
    visit_own_values(visitor);
  }
  share_buffers();
  for (const NamedBuffer& buffer : buffers()) {
    visitor.row(std::string(kBufferPrefix) + buffer.name,
                tensor_at(buffer.values.data(), DType::f32, 1, std::ssize(buffer.values)),
                RowKind::same);
  }
}

// If ranks do not sum gradients: visits the updated values of each rank. A checkpoint of ranks that
// summed gradients has none of these rows; all ranks then start with equal values.
void Replica::visit_own_values(StateVisitor& visitor) {
  const std::vector<std::string> kinds = this->kinds();
  for (size_t kind = 0; kind < kinds.size(); ++kind) {
    for (const OwnedPiece& piece : owned()) {
      const std::string name = "own." + kinds[kind] + "." + piece.spec->name;
      if (!visitor.has(name)) return;
      visitor.row(name, values_of(piece, kind), RowKind::averaged);
    }
  }
}

void Replica::finish_values() { synchronizer_->finish_values(); }

void Replica::publish() {
  for (const OwnedPiece& piece : storage_.owned()) {
    store_masters(piece);
    storage_.evict(piece);
  }
  synchronizer_->publish_values();
}

std::vector<NamedBuffer> Replica::buffers() {
  std::vector<NamedBuffer> buffers = model_.buffers();
  std::erase_if(buffers, [&](const NamedBuffer& at) { return !placement_.has_unit(at.unit); });
  return buffers;
}

void Replica::share_buffers() {
  for (const NamedBuffer& buffer : buffers()) {
    if (synchronizer_->sums_gradients()) {
      group_.broadcast(buffer.values, 0);
    } else {
      group_.all_reduce(buffer.values, ReduceOp::avg);
    }
  }
}

}  // namespace tutti::training
