// Calls before and after each unit of a model.
#pragma once

namespace tutti::training {

// ZeRO-3 gathers and frees a unit's parameters in these calls; synchronizers start to reduce a
// micro-batch's gradients in them.
class UnitHooks {
 public:
  virtual ~UnitHooks() = default;
  virtual void before_forward(int unit) {}
  virtual void after_forward(int unit) {}
  virtual void before_backward(int unit) {}
  virtual void after_backward(int unit) {}  // the unit's parameter values are no longer needed
  // Around deferred backward_weight; if it is not deferred, only after_weights() is called, after
  // after_backward().
  virtual void before_weights(int unit) {}
  virtual void after_weights(int unit) {}
};

}  // namespace tutti::training
