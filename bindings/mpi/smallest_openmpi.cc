#include "bindings/mpi/smallest.h"

namespace tutti::mpi {

const uint64_t kSmallest = 0;

}  // namespace tutti::mpi
