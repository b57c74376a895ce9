// From how many bytes on Tutti takes a call, where TUTTI_MPI_SMALLEST does not say. A file for each
// MPI library has the number that was measured.
#pragma once

#include <cstdint>

namespace tutti::mpi {

extern const uint64_t kSmallest;

}  // namespace tutti::mpi
