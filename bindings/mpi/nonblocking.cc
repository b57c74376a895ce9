// The intercepted non-blocking functions.
#include <mpi.h>

#include "bindings/mpi/calls.h"

namespace tutti::mpi {

extern "C" {

int MPI_Ibarrier(MPI_Comm comm, MPI_Request* request) {
  return barrier(Starting{request}, comm, [&] { return PMPI_Ibarrier(comm, request); });
}

int MPI_Iallreduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op,
                   MPI_Comm comm, MPI_Request* request) {
  return all_reduce(Starting{request}, in, out, count, type, op, comm,
                    [&] { return PMPI_Iallreduce(in, out, count, type, op, comm, request); });
}

int MPI_Ireduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, int root,
                MPI_Comm comm, MPI_Request* request) {
  return reduce(Starting{request}, in, out, count, type, op, root, comm,
                [&] { return PMPI_Ireduce(in, out, count, type, op, root, comm, request); });
}

int MPI_Iscan(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
              MPI_Request* request) {
  return scan(Starting{request}, in, out, count, type, op, comm,
              [&] { return PMPI_Iscan(in, out, count, type, op, comm, request); });
}

int MPI_Iexscan(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                MPI_Request* request) {
  return exscan(Starting{request}, in, out, count, type, op, comm,
                [&] { return PMPI_Iexscan(in, out, count, type, op, comm, request); });
}

int MPI_Ireduce_scatter_block(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op,
                              MPI_Comm comm, MPI_Request* request) {
  return reduce_scatter_block(Starting{request}, in, out, count, type, op, comm, [&] {
    return PMPI_Ireduce_scatter_block(in, out, count, type, op, comm, request);
  });
}

int MPI_Ireduce_scatter(const void* in, void* out, const int counts[], MPI_Datatype type, MPI_Op op,
                        MPI_Comm comm, MPI_Request* request) {
  return reduce_scatter(Starting{request}, in, out, counts, type, op, comm, [&] {
    return PMPI_Ireduce_scatter(in, out, counts, type, op, comm, request);
  });
}

int MPI_Ibcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm comm,
               MPI_Request* request) {
  return broadcast(Starting{request}, data, count, type, root, comm,
                   [&] { return PMPI_Ibcast(data, count, type, root, comm, request); });
}

int MPI_Iallgather(const void* in, int in_count, MPI_Datatype in_type, void* out, int count,
                   MPI_Datatype type, MPI_Comm comm, MPI_Request* request) {
  return all_gather(Starting{request}, in, in_count, in_type, out, count, type, comm, [&] {
    return PMPI_Iallgather(in, in_count, in_type, out, count, type, comm, request);
  });
}

int MPI_Iallgatherv(const void* in, int in_count, MPI_Datatype in_type, void* out,
                    const int counts[], const int places[], MPI_Datatype type, MPI_Comm comm,
                    MPI_Request* request) {
  return all_gatherv(
      Starting{request}, in, in_count, in_type, out, counts, places, type, comm, [&] {
        return PMPI_Iallgatherv(in, in_count, in_type, out, counts, places, type, comm, request);
      });
}

int MPI_Igather(const void* in, int in_count, MPI_Datatype in_type, void* out, int count,
                MPI_Datatype type, int root, MPI_Comm comm, MPI_Request* request) {
  return gather(Starting{request}, in, in_count, in_type, out, count, type, root, comm, [&] {
    return PMPI_Igather(in, in_count, in_type, out, count, type, root, comm, request);
  });
}

int MPI_Igatherv(const void* in, int in_count, MPI_Datatype in_type, void* out, const int counts[],
                 const int places[], MPI_Datatype type, int root, MPI_Comm comm,
                 MPI_Request* request) {
  return gatherv(
      Starting{request}, in, in_count, in_type, out, counts, places, type, root, comm, [&] {
        return PMPI_Igatherv(in, in_count, in_type, out, counts, places, type, root, comm, request);
      });
}

int MPI_Iscatter(const void* in, int count, MPI_Datatype type, void* out, int out_count,
                 MPI_Datatype out_type, int root, MPI_Comm comm, MPI_Request* request) {
  return scatter(Starting{request}, in, count, type, out, out_count, out_type, root, comm, [&] {
    return PMPI_Iscatter(in, count, type, out, out_count, out_type, root, comm, request);
  });
}

int MPI_Iscatterv(const void* in, const int counts[], const int places[], MPI_Datatype type,
                  void* out, int out_count, MPI_Datatype out_type, int root, MPI_Comm comm,
                  MPI_Request* request) {
  return scatterv(Starting{request}, in, counts, places, type, out, out_count, out_type, root, comm,
                  [&] {
                    return PMPI_Iscatterv(in, counts, places, type, out, out_count, out_type, root,
                                          comm, request);
                  });
}

int MPI_Ialltoall(const void* in, int in_count, MPI_Datatype in_type, void* out, int count,
                  MPI_Datatype type, MPI_Comm comm, MPI_Request* request) {
  return all_to_all(Starting{request}, in, in_count, in_type, out, count, type, comm, [&] {
    return PMPI_Ialltoall(in, in_count, in_type, out, count, type, comm, request);
  });
}

int MPI_Ialltoallv(const void* in, const int in_counts[], const int in_places[],
                   MPI_Datatype in_type, void* out, const int counts[], const int places[],
                   MPI_Datatype type, MPI_Comm comm, MPI_Request* request) {
  return all_to_allv(Starting{request}, in, in_counts, in_places, in_type, out, counts, places,
                     type, comm, [&] {
                       return PMPI_Ialltoallv(in, in_counts, in_places, in_type, out, counts,
                                              places, type, comm, request);
                     });
}

}  // extern "C"

}  // namespace tutti::mpi
