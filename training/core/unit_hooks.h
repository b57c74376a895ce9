// Interface of functions that are called before and after each unit of a model.
#pragma once

namespace tutti::training {

// Calls around each unit. ZeRO-3 gathers and frees a unit's parameters in these calls;
// synchronizers start to reduce a micro-batch's gradients in them.
class UnitHooks {
 public:
  virtual ~UnitHooks() = default;
  virtual void before_forward(int unit) {}
  virtual void after_forward(int unit) {}
  virtual void before_backward(int unit) {}
  // called after the unit's backward, when its parameter values are no longer needed
  virtual void after_backward(int unit) {}
  // Called around a deferred backward_weight. If it is not deferred, only after_weights() is
  // called, following after_backward().
  virtual void before_weights(int unit) {}
  virtual void after_weights(int unit) {}
};

}  // namespace tutti::training
