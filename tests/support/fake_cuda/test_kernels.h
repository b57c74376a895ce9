// Parameters of the kernels that test the driver itself (test_kernels.cc).
#pragma once

#include <cstdint>

namespace tutti::testing {

struct FillParameter {  // "fill": to[i] = value
  uint64_t* to;
  uint64_t count;
  uint64_t value;
};

struct AddParameter {  // "add": to[i] += from[i]
  uint64_t* to;
  const uint64_t* from;
  uint64_t count;
};

struct SpinParameter {  // "spin": raises `begun`, then waits until `go` is not 0
  uint64_t* begun;
  const uint64_t* go;
};

}  // namespace tutti::testing
