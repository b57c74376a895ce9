// Local SGD: each rank updates its values with its own gradients, and every K updates the ranks
// average their values. Between two averages they send nothing, and their values differ.
//
//   rank 0   update update ... update |         | update ...
//   rank 1   update update ... update | average | update ...      K updates between two averages
//
// With K = 1 and an optimizer without state that is what summed gradients give, up to rounding. An
// optimizer's state stays each rank's own. Post-local SGD averages gradients at first: then values
// are the same on all ranks until that step.
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
  // `every`: K, at least 1. `after`: the number of updates before which gradients are averaged.
  LocalSgd(ParameterStorage& storage, int64_t every, int64_t after = 0);

  void finish_gradients() override;

 private:
  void exchange(int64_t update) override;

  int64_t every_;
  int64_t after_;
};

}  // namespace tutti::training
