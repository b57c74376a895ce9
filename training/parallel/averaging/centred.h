// Base class of synchronizers that have a centre: a row of f32 values that is equal on all ranks.
// Each rank's progress is the difference between its own values and the centre.
#pragma once

#include <cstdint>
#include <span>

#include "training/parallel/averaging/averaging.h"
#include "training/parallel/averaging/value_row.h"

namespace tutti::training {

class Centred : public Averaging {
 public:
  Centred(ParameterStorage& storage, const SyncOptions& options);

  // Makes initial or loaded values the centre, unless a checkpoint had a centre.
  void publish_values() override;
  void visit_state(StateVisitor& visitor) override;

 protected:
  ValueRow& values() { return values_; }
  int64_t count() const { return values_.size(); }
  std::span<float> centre() const { return span_of(centre_); }
  Memory<float> allocate_row();
  std::span<float> span_of(const Memory<float>& row) const {
    return {row.get(), static_cast<size_t>(count())};
  }
  // Visits a row that is equal on all ranks.
  void visit_row(StateVisitor& visitor, const char* name, std::span<float> row) const;

 private:
  ValueRow values_;
  Memory<float> centre_;
  bool loaded_ = false;  // true if the centre came from a checkpoint
};

}  // namespace tutti::training
