// The non-blocking functions with MPI 4's large counts, for libraries that have them.
#include <mpi.h>

#include "bindings/mpi/calls.h"

namespace tutti::mpi {

extern "C" {

int MPI_Iallreduce_c(const void* in, void* out, MPI_Count count, MPI_Datatype type, MPI_Op op,
                     MPI_Comm comm, MPI_Request* request) {
  return all_reduce(Starting{request}, in, out, count, type, op, comm,
                    [&] { return PMPI_Iallreduce_c(in, out, count, type, op, comm, request); });
}

int MPI_Ireduce_c(const void* in, void* out, MPI_Count count, MPI_Datatype type, MPI_Op op,
                  int root, MPI_Comm comm, MPI_Request* request) {
  return reduce(Starting{request}, in, out, count, type, op, root, comm,
                [&] { return PMPI_Ireduce_c(in, out, count, type, op, root, comm, request); });
}

int MPI_Iscan_c(const void* in, void* out, MPI_Count count, MPI_Datatype type, MPI_Op op,
                MPI_Comm comm, MPI_Request* request) {
  return scan(Starting{request}, in, out, count, type, op, comm,
              [&] { return PMPI_Iscan_c(in, out, count, type, op, comm, request); });
}

int MPI_Iexscan_c(const void* in, void* out, MPI_Count count, MPI_Datatype type, MPI_Op op,
                  MPI_Comm comm, MPI_Request* request) {
  return exscan(Starting{request}, in, out, count, type, op, comm,
                [&] { return PMPI_Iexscan_c(in, out, count, type, op, comm, request); });
}

int MPI_Ireduce_scatter_block_c(const void* in, void* out, MPI_Count count, MPI_Datatype type,
                                MPI_Op op, MPI_Comm comm, MPI_Request* request) {
  return reduce_scatter_block(Starting{request}, in, out, count, type, op, comm, [&] {
    return PMPI_Ireduce_scatter_block_c(in, out, count, type, op, comm, request);
  });
}

int MPI_Ireduce_scatter_c(const void* in, void* out, const MPI_Count counts[], MPI_Datatype type,
                          MPI_Op op, MPI_Comm comm, MPI_Request* request) {
  return reduce_scatter(Starting{request}, in, out, counts, type, op, comm, [&] {
    return PMPI_Ireduce_scatter_c(in, out, counts, type, op, comm, request);
  });
}

int MPI_Ibcast_c(void* data, MPI_Count count, MPI_Datatype type, int root, MPI_Comm comm,
                 MPI_Request* request) {
  return broadcast(Starting{request}, data, count, type, root, comm,
                   [&] { return PMPI_Ibcast_c(data, count, type, root, comm, request); });
}

int MPI_Iallgather_c(const void* in, MPI_Count in_count, MPI_Datatype in_type, void* out,
                     MPI_Count count, MPI_Datatype type, MPI_Comm comm, MPI_Request* request) {
  return all_gather(Starting{request}, in, in_count, in_type, out, count, type, comm, [&] {
    return PMPI_Iallgather_c(in, in_count, in_type, out, count, type, comm, request);
  });
}

int MPI_Iallgatherv_c(const void* in, MPI_Count in_count, MPI_Datatype in_type, void* out,
                      const MPI_Count counts[], const MPI_Aint places[], MPI_Datatype type,
                      MPI_Comm comm, MPI_Request* request) {
  return all_gatherv(
      Starting{request}, in, in_count, in_type, out, counts, places, type, comm, [&] {
        return PMPI_Iallgatherv_c(in, in_count, in_type, out, counts, places, type, comm, request);
      });
}

int MPI_Igather_c(const void* in, MPI_Count in_count, MPI_Datatype in_type, void* out,
                  MPI_Count count, MPI_Datatype type, int root, MPI_Comm comm,
                  MPI_Request* request) {
  return gather(Starting{request}, in, in_count, in_type, out, count, type, root, comm, [&] {
    return PMPI_Igather_c(in, in_count, in_type, out, count, type, root, comm, request);
  });
}

int MPI_Igatherv_c(const void* in, MPI_Count in_count, MPI_Datatype in_type, void* out,
                   const MPI_Count counts[], const MPI_Aint places[], MPI_Datatype type, int root,
                   MPI_Comm comm, MPI_Request* request) {
  return gatherv(Starting{request}, in, in_count, in_type, out, counts, places, type, root, comm,
                 [&] {
                   return PMPI_Igatherv_c(in, in_count, in_type, out, counts, places, type, root,
                                          comm, request);
                 });
}

int MPI_Iscatter_c(const void* in, MPI_Count count, MPI_Datatype type, void* out,
                   MPI_Count out_count, MPI_Datatype out_type, int root, MPI_Comm comm,
                   MPI_Request* request) {
  return scatter(Starting{request}, in, count, type, out, out_count, out_type, root, comm, [&] {
    return PMPI_Iscatter_c(in, count, type, out, out_count, out_type, root, comm, request);
  });
}

int MPI_Iscatterv_c(const void* in, const MPI_Count counts[], const MPI_Aint places[],
                    MPI_Datatype type, void* out, MPI_Count out_count, MPI_Datatype out_type,
                    int root, MPI_Comm comm, MPI_Request* request) {
  return scatterv(Starting{request}, in, counts, places, type, out, out_count, out_type, root, comm,
                  [&] {
                    return PMPI_Iscatterv_c(in, counts, places, type, out, out_count, out_type,
                                            root, comm, request);
                  });
}

int MPI_Ialltoall_c(const void* in, MPI_Count in_count, MPI_Datatype in_type, void* out,
                    MPI_Count count, MPI_Datatype type, MPI_Comm comm, MPI_Request* request) {
  return all_to_all(Starting{request}, in, in_count, in_type, out, count, type, comm, [&] {
    return PMPI_Ialltoall_c(in, in_count, in_type, out, count, type, comm, request);
  });
}

int MPI_Ialltoallv_c(const void* in, const MPI_Count in_counts[], const MPI_Aint in_places[],
                     MPI_Datatype in_type, void* out, const MPI_Count counts[],
                     const MPI_Aint places[], MPI_Datatype type, MPI_Comm comm,
                     MPI_Request* request) {
  return all_to_allv(Starting{request}, in, in_counts, in_places, in_type, out, counts, places,
                     type, comm, [&] {
                       return PMPI_Ialltoallv_c(in, in_counts, in_places, in_type, out, counts,
                                                places, type, comm, request);
                     });
}

}  // extern "C"

}  // namespace tutti::mpi
