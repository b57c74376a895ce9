// Calls before and after each unit of a model.
#pragma once

namespace tutti::training {

// ZeRO-3 gathers and frees a unit's parameters in these calls; a synchronizer learns from them that
// a micro-batch's gradients have been added.
class UnitHooks {
 public:
  virtual ~UnitHooks() = default;
  virtual void before_forward(int unit) {}
  virtual void after_forward(int unit) {}
  virtual void before_backward(int unit) {}
  virtual void after_backward(int unit) {}  // its parameters' values are not needed any more
  // Put-off backward_weight; without it, after_weights() alone follows after_backward().
  virtual void before_weights(int unit) {}
  virtual void after_weights(int unit) {}
};

}  // namespace tutti::training
