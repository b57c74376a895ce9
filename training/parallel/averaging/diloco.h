// DiLoCo: each rank makes H updates by its own gradients. The outer values are the values from
// which all ranks started these updates. The mean over ranks of the differences between outer and
// own values serves as the gradient of an outer optimizer, SGD with Nesterov momentum. All ranks
// continue from the new outer values.
//
//   delta = outer values - own values      mean over ranks
//   momentum = m momentum + delta;  outer values -= rate (delta + m momentum)
//   own values = share own + (1 - share) outer values
//
// Streaming: the row of values is divided into P fragments, which are sent one after the other, H /
// P updates apart; the mean of a fragment is applied TAU updates after it was sent.
//
//   update      H/P           2H/P           H
//   fragment 0   | sent..applied
//   fragment 1                  | sent..applied
//
// Differences may be sent with fewer bits (SyncOptions::wire); all ranks still get the same mean.
//
// Douillard et al.: DiLoCo, 2023, algorithm 1; Douillard et al.: Streaming DiLoCo with overlapping
// communication, 2025, algorithm 2.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "training/parallel/averaging/centred.h"

namespace tutti::training {

// Returns the fragment that DiLoCo sends after update number `update`, counted from 1, if it sends
// one.
std::optional<int64_t> fragment_sent_at(const SyncOptions& options, int64_t update);

class DiLoCo : public Centred {
 public:
  DiLoCo(ParameterStorage& storage, const SyncOptions& options);
  // Waits for the fragment in flight, or aborts it after an error.
  ~DiLoCo() override;
  DiLoCo(const DiLoCo&) = delete;
  DiLoCo& operator=(const DiLoCo&) = delete;

  // Makes progress on a fragment in flight while the next step computes.
  void after_weights(int unit) override;
  void visit_state(StateVisitor& visitor) override;

 private:
  struct Range {
    int64_t first = 0;
    int64_t count = 0;
  };

  void exchange(int64_t update) override;
  Range range_of(int64_t fragment) const;
  void send_fragment(int64_t fragment);
  void wait_for_mean();
  void apply_mean(int64_t fragment);
  bool has_same_schedule(StateVisitor& visitor) const;

  // momentum of the outer optimizer; the outer values are the centre
  Memory<float> momentum_;
  Memory<float> delta_;
  int64_t in_flight_ = -1;    // the fragment whose mean has not been applied yet; -1: none
  std::optional<Work> mean_;  // the reduction of fragment in_flight_, until it is complete
};

}  // namespace tutti::training
