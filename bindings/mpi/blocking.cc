// The intercepted blocking functions.
#include <mpi.h>

#include "bindings/mpi/calls.h"

namespace tutti::mpi {

extern "C" {

int MPI_Init(int* argc, char*** argv) {
  const int status = PMPI_Init(argc, argv);
  if (status == MPI_SUCCESS) begin();
  return status;
}

int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  const int status = PMPI_Init_thread(argc, argv, required, provided);
  if (status == MPI_SUCCESS) begin();
  return status;
}

int MPI_Finalize() {
  end();
  return PMPI_Finalize();
}

int MPI_Barrier(MPI_Comm comm) {
  return barrier(Blocking{}, comm, [&] { return PMPI_Barrier(comm); });
}

int MPI_Allreduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op,
                  MPI_Comm comm) {
  return all_reduce(Blocking{}, in, out, count, type, op, comm,
                    [&] { return PMPI_Allreduce(in, out, count, type, op, comm); });
}

int MPI_Reduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, int root,
               MPI_Comm comm) {
  return reduce(Blocking{}, in, out, count, type, op, root, comm,
                [&] { return PMPI_Reduce(in, out, count, type, op, root, comm); });
}

int MPI_Scan(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  return scan(Blocking{}, in, out, count, type, op, comm,
              [&] { return PMPI_Scan(in, out, count, type, op, comm); });
}

int MPI_Exscan(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  return exscan(Blocking{}, in, out, count, type, op, comm,
                [&] { return PMPI_Exscan(in, out, count, type, op, comm); });
}

int MPI_Reduce_scatter_block(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op,
                             MPI_Comm comm) {
  return reduce_scatter_block(Blocking{}, in, out, count, type, op, comm, [&] {
    return PMPI_Reduce_scatter_block(in, out, count, type, op, comm);
  });
}

int MPI_Reduce_scatter(const void* in, void* out, const int counts[], MPI_Datatype type, MPI_Op op,
                       MPI_Comm comm) {
  return reduce_scatter(Blocking{}, in, out, counts, type, op, comm,
                        [&] { return PMPI_Reduce_scatter(in, out, counts, type, op, comm); });
}

int MPI_Bcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  return broadcast(Blocking{}, data, count, type, root, comm,
                   [&] { return PMPI_Bcast(data, count, type, root, comm); });
}

int MPI_Allgather(const void* in, int in_count, MPI_Datatype in_type, void* out, int count,
                  MPI_Datatype type, MPI_Comm comm) {
  return all_gather(Blocking{}, in, in_count, in_type, out, count, type, comm,
                    [&] { return PMPI_Allgather(in, in_count, in_type, out, count, type, comm); });
}

int MPI_Allgatherv(const void* in, int in_count, MPI_Datatype in_type, void* out,
                   const int counts[], const int places[], MPI_Datatype type, MPI_Comm comm) {
  return all_gatherv(Blocking{}, in, in_count, in_type, out, counts, places, type, comm, [&] {
    return PMPI_Allgatherv(in, in_count, in_type, out, counts, places, type, comm);
  });
}

int MPI_Gather(const void* in, int in_count, MPI_Datatype in_type, void* out, int count,
               MPI_Datatype type, int root, MPI_Comm comm) {
  return gather(Blocking{}, in, in_count, in_type, out, count, type, root, comm,
                [&] { return PMPI_Gather(in, in_count, in_type, out, count, type, root, comm); });
}

int MPI_Gatherv(const void* in, int in_count, MPI_Datatype in_type, void* out, const int counts[],
                const int places[], MPI_Datatype type, int root, MPI_Comm comm) {
  return gatherv(Blocking{}, in, in_count, in_type, out, counts, places, type, root, comm, [&] {
    return PMPI_Gatherv(in, in_count, in_type, out, counts, places, type, root, comm);
  });
}

int MPI_Scatter(const void* in, int count, MPI_Datatype type, void* out, int out_count,
                MPI_Datatype out_type, int root, MPI_Comm comm) {
  return scatter(Blocking{}, in, count, type, out, out_count, out_type, root, comm, [&] {
    return PMPI_Scatter(in, count, type, out, out_count, out_type, root, comm);
  });
}

int MPI_Scatterv(const void* in, const int counts[], const int places[], MPI_Datatype type,
                 void* out, int out_count, MPI_Datatype out_type, int root, MPI_Comm comm) {
  return scatterv(Blocking{}, in, counts, places, type, out, out_count, out_type, root, comm, [&] {
    return PMPI_Scatterv(in, counts, places, type, out, out_count, out_type, root, comm);
  });
}

int MPI_Alltoall(const void* in, int in_count, MPI_Datatype in_type, void* out, int count,
                 MPI_Datatype type, MPI_Comm comm) {
  return all_to_all(Blocking{}, in, in_count, in_type, out, count, type, comm,
                    [&] { return PMPI_Alltoall(in, in_count, in_type, out, count, type, comm); });
}

int MPI_Alltoallv(const void* in, const int in_counts[], const int in_places[],
                  MPI_Datatype in_type, void* out, const int counts[], const int places[],
                  MPI_Datatype type, MPI_Comm comm) {
  return all_to_allv(
      Blocking{}, in, in_counts, in_places, in_type, out, counts, places, type, comm, [&] {
        return PMPI_Alltoallv(in, in_counts, in_places, in_type, out, counts, places, type, comm);
      });
}

}  // extern "C"

}  // namespace tutti::mpi
