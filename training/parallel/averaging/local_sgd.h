// Local SGD: each rank updates its values by its own gradients, and every K updates the ranks
// average their values. Between two averages ranks do not communicate, and their values differ.
//
//   rank 0   update update ... update |         | update ...
//   rank 1   update update ... update | average | update ...      K updates between two averages
//
// With K = 1 and a stateless optimizer, local SGD equals summed gradients, up to rounding.
// Optimizer state stays local. Post-local SGD averages gradients in the first steps, during which
// values are equal on all ranks.
//
// Zinkevich, Weimer, Smola, Li: Parallelized stochastic gradient descent, NeurIPS 2010 (one
// average, at the end); McMahan et al.: Communication-efficient learning of deep networks from
// decentralized data, AISTATS 2017 (averages in rounds); Stich: Local SGD converges fast and
// communicates little, ICLR 2019; Lin et al.: Don't use large mini-batches, use local SGD, ICLR
// 2020 (post-local).
#pragma once

#include <cstdint>

#include "training/parallel/averaging/averaging.h"

namespace tutti::training {

class LocalSgd : public Averaging {
 public:
  LocalSgd(ParameterStorage& storage, const SyncOptions& options) : Averaging(storage, options) {}

  void finish_gradients() override;
  void visit_state(StateVisitor& visitor) override;
  // While gradients are averaged, values must be equal on all ranks. A loaded state has equal
  // values if its run averaged gradients, too; otherwise this returns false, so that all ranks take
  // the mean.
  bool takes_own_values() const override {
    const bool were_same = updates() < read_local_after_;
    return Averaging::takes_own_values() && (updates() >= options().local_after || were_same);
  }

 private:
  void exchange(int64_t update) override;

  int64_t read_local_after_ = 0;  // local_after in the state that was read last
};

}  // namespace tutti::training
