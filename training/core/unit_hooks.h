// Calls before and after each unit of a model.
#pragma once

namespace tutti::training {

// What happens around a unit's calls: whoever keeps parameters elsewhere brings them and takes them
// away (ZeRO-3), whoever sums gradients over ranks learns that a micro-batch's are added.
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
