// DiLoCo: each rank makes H updates of its own, then an outer optimizer (SGD with Nesterov's
// momentum) takes the mean of what the ranks moved by as a gradient, and all go on from its values.
//
//   delta = outer values - own values      mean over ranks
//   momentum = m momentum + delta;  outer values -= rate (delta + m momentum)
//   own values = share own + (1 - share) outer values
//
// Streaming: the row of values is cut into P fragments, which are sent one after the other, H / P
// updates apart; the mean of a fragment may be on its way for TAU updates.
//
//   update      H/P           2H/P           H
//   fragment 0   | sent..used
//   fragment 1                 | sent..used
//
// What ranks moved by may be sent in fewer bits (SyncOptions::wire): all ranks get the same mean.
//
// Douillard et al.: DiLoCo, 2023, algorithm 1; Douillard et al.: Streaming DiLoCo with overlapping
// communication, 2025, algorithm 2.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "training/parallel/averaging/averaging.h"
#include "training/parallel/averaging/value_row.h"

namespace tutti::training {

class DiLoCo : public Averaging {
 public:
  DiLoCo(ParameterStorage& storage, const SyncOptions& options);

  // Values that were filled or loaded are the outer ones too, unless a checkpoint had these.
  void publish_values() override;
  void visit_state(StateVisitor& visitor) override;
  int64_t bytes() const override;

 private:
  struct Range {
    int64_t first = 0;
    int64_t count = 0;
  };

  void exchange(int64_t update) override;
  // The fragment that is sent after this update; none: no value.
  std::optional<int64_t> due(int64_t update) const;
  Range range_of(int64_t fragment) const;
  std::span<float> in(const Memory<float>& row, Range range) const;
  void send(int64_t fragment);
  void use(int64_t fragment);

  SyncOptions options_;
  ValueRow row_;
  Memory<float> outer_;
  Memory<float> momentum_;
  Memory<float> delta_;
  std::optional<Work> sum_;  // of the fragment under way; none: it has arrived
  int64_t under_way_ = -1;   // the fragment that is not used yet; -1: none
  bool loaded_ = false;
};

}  // namespace tutti::training
