// Local SGD: each rank updates its values with its own gradients, and every K updates the ranks
// average their values. Between two averages they send nothing, and their values differ.
//
//   rank 0   update update ... update |         | update ...
//   rank 1   update update ... update | average | update ...      K updates between two averages
//
// With K = 1 and an optimizer without state that is what summed gradients give, up to rounding. An
// optimizer's state stays each rank's own.
//
// Zinkevich, Weimer, Smola, Li: Parallelized stochastic gradient descent, NeurIPS 2010 (one
// average, at the end); McMahan et al.: Communication-efficient learning of deep networks from
// decentralized data, AISTATS 2017 (averages in rounds); Stich: Local SGD converges fast and
// communicates little, ICLR 2019.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "collectives/communicator.h"
#include "training/parallel/storage.h"
#include "training/parallel/synchronizer.h"

namespace tutti::training {

class LocalSgd : public Synchronizer {
 public:
  // `storage`, of stage 0 with f32 values or masters, outlives it. `every`: K, at least 1.
  LocalSgd(ParameterStorage& storage, int64_t every);

  void begin_step(const std::vector<int64_t>&) override { storage_.zero_gradients(); }
  void finish_gradients() override {}
  bool sums_gradients() const override { return false; }
  void after_update() override;
  void publish_values() override {}

  // How many updates there were since the last average.
  void visit_state(StateVisitor& visitor) override;

  std::chrono::nanoseconds waited() const override { return waited_; }
  double bytes_sent() const override { return bytes_sent_; }
  void observe(const Observer& observer) override { observer_ = observer; }

 private:
  ParameterStorage& storage_;
  Communicator ranks_;
  int64_t every_;
  int64_t updates_ = 0;  // since the last average
  std::chrono::nanoseconds waited_{0};
  double bytes_sent_ = 0;
  Observer observer_;
};

}  // namespace tutti::training
