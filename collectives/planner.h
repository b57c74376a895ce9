// Chooses the algorithm of a call. The choice depends on agreed inputs only, so all ranks choose
// alike without talking.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "collectives/algorithm.h"
#include "collectives/slicing.h"

namespace tutti {

// What has to be chosen for. `bytes`: of one block (of the buffer, where there are no blocks).
struct Wanted {
  Collective collective = Collective::barrier;
  int root = 0;
  uint64_t bytes = 0;
  DType dtype = DType::f32;
  Grade at_least = Grade::same_bits;
  bool direct = false;  // Algorithm::direct
};

class Planner {
 public:
  Planner(const Shape& shape, const Limits& limits) : shape_(shape), limits_(limits) {}

  const Algorithm& choose(const Wanted& wanted);

 private:
  Shape shape_;
  Limits limits_;
};

}  // namespace tutti
