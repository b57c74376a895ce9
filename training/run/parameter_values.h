// Reads and writes a model's parameters between training steps.
//
// The values are those that the optimizer updates, in f32: the masters, if there are any. No step
// may be in flight during a call.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collectives/communicator.h"
#include "training/engine/replica.h"

namespace tutti::training {

class ParameterValues {
 public:
  // Creates the object; `replica` and `model` must outlive it.
  ParameterValues(Replica& replica, Model& model) : replica_(replica), model_(model) {}

  const std::vector<ParameterSpec>& specs() const { return model_.parameters().specs(); }
  // Returns true if this rank's pipeline stage has the parameter. The functions below require it.
  bool has(int parameter) const;
  // Returns the values themselves, if this rank has all of them in f32 (up to ZeRO stage 2, for a
  // parameter that is not divided along mesh axes); otherwise null. The caller may change them,
  // equally on all ranks, while it holds the pointer.
  Memory<float> in_place(int parameter);
  // Copies the values of the whole parameter into `values`. With ZeRO, the call is collective among
  // the ranks of the stage. If the parameter is divided along mesh axes, the call is also
  // collective among the ranks that have its parts.
  void read(int parameter, std::span<float> values);
  // Sets the values of the whole parameter. Every rank of the stage must write the same values.
  // Does not communicate.
  void write(int parameter, std::span<const float> values);

 private:
  const ParameterSpec& spec(int parameter) const;
  template <typename Use>
  void with_owned(int parameter, const Use& use);

  Replica& replica_;
  Model& model_;
};

}  // namespace tutti::training
