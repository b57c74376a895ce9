// A model's parameters in training, read and written between steps.
//
// What is read and written are the values that the optimizer updates, in f32: masters, where there
// are any. The calls are made where no step is under way.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collectives/communicator.h"
#include "training/engine/replica.h"

namespace tutti::training {

class ParameterValues {
 public:
  // Both outlive it.
  ParameterValues(Replica& replica, Model& model) : replica_(replica), model_(model) {}

  const std::vector<ParameterSpec>& specs() const { return model_.parameters().specs(); }
  // Whether this rank's stage of a pipeline has the parameter. The calls below are for these.
  bool has(int parameter) const;
  // The values themselves, where this rank has all of them in f32 (up to ZeRO stage 2, and not
  // cut); else null.
  // They may be changed, alike on all ranks, and live as long as the pointer.
  Memory<float> in_place(int parameter);
  // A copy of the values; `values` has all elements of the whole. Collective among the ranks that
  // have parts of it: those of the stage, with ZeRO or where the parameter is cut.
  void read(int parameter, std::span<float> values);
  // Every rank of the stage writes the same values. Nothing is sent.
  void write(int parameter, std::span<const float> values);

 private:
  const ParameterSpec& spec(int parameter) const;
  template <typename Use>
  void with_owned(int parameter, const Use& use);

  Replica& replica_;
  Model& model_;
};

}  // namespace tutti::training
