// Maps MPI's reductions to Tutti's reductions.
#pragma once

#include <mpi.h>

#include <cstdint>

#include "base/dtype.h"
#include "collectives/reduction.h"

namespace tutti::mpi {

struct Reducible {
  DType dtype = DType::u8;
  Reduction op;  // one MPI element is op.width() elements of the dtype
  // True for the program's own function, which may run only inside calls that the program makes.
  bool is_programs = false;

  uint64_t element_bytes() const { return op.width() * size_of(dtype); }
};

// Returns Tutti's reduction for this operator and type; null if the call falls through. It covers
// all predefined combinations that MPI defines except 16-byte integers and Fortran's 16-byte reals,
// and the program's operators on elements without gaps of up to 256 bytes. The pointer is valid
// until this thread's next call of reducible().
const Reducible* reducible(MPI_Datatype type, MPI_Op op);

}  // namespace tutti::mpi
