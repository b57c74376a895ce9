// States of whole parameters that are in files: those of the parameter that is computed are in
// memory, and of the one after it, as far as the last step tells.
#pragma once

#include <map>
#include <optional>

#include "training/offload/pager.h"
#include "training/optimizers/whole_states.h"

namespace tutti::training {

class OffloadedWholes {
 public:
  // Both outlive it.
  OffloadedWholes(Pager& pager, const WholeStates& states) : pager_(pager), states_(states) {}

  // Returns when the parameter's states are in memory. Gives back those of the one before.
  void use(int parameter);
  // No parameter is in use any more.
  void end();

 private:
  PageRange memory_of(int parameter) const;

  Pager& pager_;
  const WholeStates& states_;
  std::optional<int> used_;
  std::map<int, int> next_;  // after each parameter, in the last step
};

}  // namespace tutti::training
