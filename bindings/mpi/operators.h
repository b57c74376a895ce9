// Which of MPI's reductions Tutti does, and in which of its own terms.
#pragma once

#include <mpi.h>

#include <cstdint>

#include "base/dtype.h"
#include "collectives/reduction.h"

namespace tutti::mpi {

struct Reducible {
  DType dtype = DType::u8;
  Reduction op;  // an element of MPI's is op.width() of the dtype's
  // The program's own function: it may run inside the program's calls only.
  bool is_programs = false;

  uint64_t element_bytes() const { return op.width() * size_of(dtype); }
};

// What MPI reduces by this operator in elements of this type; null: that falls through. Of the
// predefined ones all that MPI defines but for 16-byte integers and what Fortran has of 16-byte
// reals; of the program's all of elements without gaps, up to 256 bytes each. Valid until this
// thread asks again.
const Reducible* reducible(MPI_Datatype type, MPI_Op op);

}  // namespace tutti::mpi
