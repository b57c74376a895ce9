// The completion functions that MPI 4.1 added; earlier ones are in completion.cc.
#include <mpi.h>

#include "bindings/mpi/requests.h"

namespace tutti::mpi {

extern "C" {

int MPI_Request_get_status_all(int count, const MPI_Request all[], int* done,
                               MPI_Status statuses[]) {
  look_after_requests();
  return PMPI_Request_get_status_all(count, all, done, statuses);
}

int MPI_Request_get_status_any(int count, const MPI_Request all[], int* index, int* done,
                               MPI_Status* status) {
  look_after_requests();
  return PMPI_Request_get_status_any(count, all, index, done, status);
}

int MPI_Request_get_status_some(int count, const MPI_Request all[], int* done, int indices[],
                                MPI_Status statuses[]) {
  look_after_requests();
  return PMPI_Request_get_status_some(count, all, done, indices, statuses);
}

}  // extern "C"

}  // namespace tutti::mpi
