// Loads the optimizer states of the parameter that is being updated as a whole, and prefetches the
// states of the parameter that followed it in the last step. The states of all other parameters
// stay in files.
#pragma once

#include <map>
#include <optional>

#include "training/offload/pager.h"
#include "training/optimizers/whole_states.h"

namespace tutti::training {

class OffloadedWholes {
 public:
  // Creates the object; `pager` and `states` must outlive it.
  OffloadedWholes(Pager& pager, const WholeStates& states) : pager_(pager), states_(states) {}

  // Blocks until the parameter's states are in memory, and evicts those of the previous parameter.
  void use(int parameter);
  // Evicts the last parameter's states.
  void end();

 private:
  PageRange memory_of(int parameter) const;

  Pager& pager_;
  const WholeStates& states_;
  std::optional<int> used_;
  std::map<int, int> next_;  // the parameter that followed each parameter in the last step
};

}  // namespace tutti::training
