// The test and wait functions. They forward to the MPI library while no Tutti call is in flight.
// Otherwise they make progress on Tutti's calls, and wait by testing.
#include <mpi.h>

#include "bindings/mpi/requests.h"

namespace tutti::mpi {

extern "C" {

int MPI_Test(MPI_Request* request, int* done, MPI_Status* status) {
  look_after_requests();
  return PMPI_Test(request, done, status);
}

int MPI_Testall(int count, MPI_Request all[], int* done, MPI_Status statuses[]) {
  look_after_requests();
  return PMPI_Testall(count, all, done, statuses);
}

int MPI_Testany(int count, MPI_Request all[], int* index, int* done, MPI_Status* status) {
  look_after_requests();
  return PMPI_Testany(count, all, index, done, status);
}

int MPI_Testsome(int count, MPI_Request all[], int* done, int indices[], MPI_Status statuses[]) {
  look_after_requests();
  return PMPI_Testsome(count, all, done, indices, statuses);
}

int MPI_Request_get_status(MPI_Request request, int* done, MPI_Status* status) {
  look_after_requests();
  return PMPI_Request_get_status(request, done, status);
}

int MPI_Wait(MPI_Request* request, MPI_Status* status) {
  if (!Requests::any()) return PMPI_Wait(request, status);
  requests().wait(*request);
  return test_until_done([&](int& done) { return PMPI_Test(request, &done, status); });
}

int MPI_Waitall(int count, MPI_Request all[], MPI_Status statuses[]) {
  if (!Requests::any()) return PMPI_Waitall(count, all, statuses);
  for (int i = 0; i < count; ++i) requests().wait(all[i]);
  return test_until_done([&](int& done) { return PMPI_Testall(count, all, &done, statuses); });
}

int MPI_Waitany(int count, MPI_Request all[], int* index, MPI_Status* status) {
  if (!Requests::any()) return PMPI_Waitany(count, all, index, status);
  return test_until_done([&](int& done) { return PMPI_Testany(count, all, index, &done, status); });
}

// Sets `done` to the number of completed requests; MPI_UNDEFINED if there is nothing to wait for.
int MPI_Waitsome(int count, MPI_Request all[], int* done, int indices[], MPI_Status statuses[]) {
  if (!Requests::any()) return PMPI_Waitsome(count, all, done, indices, statuses);
  return test_until_done([&](int& any) {
    const int status = PMPI_Testsome(count, all, done, indices, statuses);
    any = *done;
    return status;
  });
}

}  // extern "C"

}  // namespace tutti::mpi
