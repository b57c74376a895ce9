// Federated averaging: ranks are clients. A round has K updates. All clients start the round with
// the same global values x and zeroed optimizer state. Some clients are selected for each round. At
// the end of the round the mean of the selected clients' values becomes the new x. A client's
// weight in the mean is the number of targets that it processed in the round.
//
//   client 0   x | update ... update | 30 targets
//   client 1   x | update ... update | not selected    x = 3/4 (values of 0) + 1/4 (values of 2)
//   client 2   x | update ... update | 10 targets
//
// A given fraction of the clients, at least one, is selected at random with the run's seed. The
// other clients train too, but their values of the round are discarded. The global values are the
// model that is validated and saved.
//
//   fedavg    the round as described. With K = 1, fraction 1 and SGD, it equals summed gradients,
//             up to rounding
//   fedprox   mu (own values - x) is added to each gradient
//   fedadam   the mean d of (own values - x) is the gradient for Adam without bias correction:
//             m = 0.9 m + 0.1 d;  v = 0.99 v + 0.01 d^2;  x += rate m / (sqrt(v) + tau)
//             tau is 1e-3, and v begins with tau^2
//
// With SyncOptions::secure_sums, sums are computed in fixed point on masked values (secure_sum.h).
//
// McMahan et al.: Communication-efficient learning of deep networks from decentralized data,
// AISTATS 2017, algorithm 1; Li et al.: Federated optimization in heterogeneous networks, MLSys
// 2020, algorithm 2; Reddi et al.: Adaptive federated optimization, ICLR 2021, algorithm 2.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "training/parallel/averaging/centred.h"

namespace tutti::training {

class Federated : public Centred {
 public:
  Federated(ParameterStorage& storage, const SyncOptions& options, uint64_t seed);

  bool weights_values(int64_t targets) override;
  void finish_gradients() override;
  bool restarts_optimizer() const override { return updates() % options().every == 0; }
  std::span<const float> shared_values() const override { return centre(); }
  void visit_state(StateVisitor& visitor) override;

 private:
  void exchange(int64_t update) override;
  void end_round(int64_t round);
  // Replaces `row` by its sum over the clients that are selected for this round.
  void sum(std::span<float> row, const std::vector<bool>& drawn, int64_t round);
  int64_t sum_of_targets(int64_t own, const std::vector<bool>& drawn, int64_t round);
  void take_mean(std::span<const float> mean);
  void visit_targets(StateVisitor& visitor);

  uint64_t seed_;
  Memory<float> row_;
  Memory<float> first_moment_;  // used by fedadam
  Memory<float> second_moment_;
  Memory<uint64_t> words_;  // used by secure sums
  int64_t step_targets_ = 0;
  int64_t round_targets_ = 0;  // number of targets in the round so far
  std::array<float, 2> saved_targets_ = {};
};

}  // namespace tutti::training
