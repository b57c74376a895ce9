// Elastic averaging SGD, synchronous form: every K updates each rank moves its values x by a
// fraction alpha of the way to a centre c, and the centre moves towards the ranks. Both moves use
// the old values.
//
//   x -= alpha (x - c)                      on each rank
//   c += alpha (sum over ranks of (x - c))
//
// With N ranks, c moves N alpha = beta of the way to the mean of the ranks' values; beta is 0.9 by
// default. The centre is the model that is validated and saved.
//
// Zhang, Choromanska, LeCun: Deep learning with elastic averaging SGD, NeurIPS 2015, section 3.
#pragma once

#include <cstdint>
#include <span>

#include "training/parallel/averaging/centred.h"

namespace tutti::training {

class Easgd : public Centred {
 public:
  Easgd(ParameterStorage& storage, const SyncOptions& options);

  std::span<const float> shared_values() const override { return centre(); }

 private:
  void exchange(int64_t update) override;

  float alpha_;
  Memory<float> differences_;
};

}  // namespace tutti::training
