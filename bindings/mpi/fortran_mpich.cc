// MPICH's Fortran functions call the intercepted C functions. The exceptions are the functions of
// `use mpi_f08` that initialise and finalise MPI.
#include <mpi.h>

extern "C" {

void mpi_init_f08_(MPI_Fint* status) {
  const int result = MPI_Init(nullptr, nullptr);
  if (status != nullptr) *status = result;
}

void mpi_init_thread_f08_(const MPI_Fint* required, MPI_Fint* provided, MPI_Fint* status) {
  const int result = MPI_Init_thread(nullptr, nullptr, *required, provided);
  if (status != nullptr) *status = result;
}

void mpi_finalize_f08_(MPI_Fint* status) {
  const int result = MPI_Finalize();
  if (status != nullptr) *status = result;
}

}  // extern "C"
