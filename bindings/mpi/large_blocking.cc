// The blocking functions with MPI 4's large counts, for libraries that have them.
#include <mpi.h>

#include "bindings/mpi/calls.h"

namespace tutti::mpi {

extern "C" {

int MPI_Allreduce_c(const void* in, void* out, MPI_Count count, MPI_Datatype type, MPI_Op op,
                    MPI_Comm comm) {
  return all_reduce(Blocking{}, in, out, count, type, op, comm,
                    [&] { return PMPI_Allreduce_c(in, out, count, type, op, comm); });
}

int MPI_Reduce_c(const void* in, void* out, MPI_Count count, MPI_Datatype type, MPI_Op op, int root,
                 MPI_Comm comm) {
  return reduce(Blocking{}, in, out, count, type, op, root, comm,
                [&] { return PMPI_Reduce_c(in, out, count, type, op, root, comm); });
}

int MPI_Scan_c(const void* in, void* out, MPI_Count count, MPI_Datatype type, MPI_Op op,
               MPI_Comm comm) {
  return scan(Blocking{}, in, out, count, type, op, comm,
              [&] { return PMPI_Scan_c(in, out, count, type, op, comm); });
}

int MPI_Exscan_c(const void* in, void* out, MPI_Count count, MPI_Datatype type, MPI_Op op,
                 MPI_Comm comm) {
  return exscan(Blocking{}, in, out, count, type, op, comm,
                [&] { return PMPI_Exscan_c(in, out, count, type, op, comm); });
}

int MPI_Reduce_scatter_block_c(const void* in, void* out, MPI_Count count, MPI_Datatype type,
                               MPI_Op op, MPI_Comm comm) {
  return reduce_scatter_block(Blocking{}, in, out, count, type, op, comm, [&] {
    return PMPI_Reduce_scatter_block_c(in, out, count, type, op, comm);
  });
}

int MPI_Reduce_scatter_c(const void* in, void* out, const MPI_Count counts[], MPI_Datatype type,
                         MPI_Op op, MPI_Comm comm) {
  return reduce_scatter(Blocking{}, in, out, counts, type, op, comm,
                        [&] { return PMPI_Reduce_scatter_c(in, out, counts, type, op, comm); });
}

int MPI_Bcast_c(void* data, MPI_Count count, MPI_Datatype type, int root, MPI_Comm comm) {
  return broadcast(Blocking{}, data, count, type, root, comm,
                   [&] { return PMPI_Bcast_c(data, count, type, root, comm); });
}

int MPI_Allgather_c(const void* in, MPI_Count in_count, MPI_Datatype in_type, void* out,
                    MPI_Count count, MPI_Datatype type, MPI_Comm comm) {
  return all_gather(Blocking{}, in, in_count, in_type, out, count, type, comm, [&] {
    return PMPI_Allgather_c(in, in_count, in_type, out, count, type, comm);
  });
}

int MPI_Allgatherv_c(const void* in, MPI_Count in_count, MPI_Datatype in_type, void* out,
                     const MPI_Count counts[], const MPI_Aint places[], MPI_Datatype type,
                     MPI_Comm comm) {
  return all_gatherv(Blocking{}, in, in_count, in_type, out, counts, places, type, comm, [&] {
    return PMPI_Allgatherv_c(in, in_count, in_type, out, counts, places, type, comm);
  });
}

int MPI_Gather_c(const void* in, MPI_Count in_count, MPI_Datatype in_type, void* out,
                 MPI_Count count, MPI_Datatype type, int root, MPI_Comm comm) {
  return gather(Blocking{}, in, in_count, in_type, out, count, type, root, comm,
                [&] { return PMPI_Gather_c(in, in_count, in_type, out, count, type, root, comm); });
}

int MPI_Gatherv_c(const void* in, MPI_Count in_count, MPI_Datatype in_type, void* out,
                  const MPI_Count counts[], const MPI_Aint places[], MPI_Datatype type, int root,
                  MPI_Comm comm) {
  return gatherv(Blocking{}, in, in_count, in_type, out, counts, places, type, root, comm, [&] {
    return PMPI_Gatherv_c(in, in_count, in_type, out, counts, places, type, root, comm);
  });
}

int MPI_Scatter_c(const void* in, MPI_Count count, MPI_Datatype type, void* out,
                  MPI_Count out_count, MPI_Datatype out_type, int root, MPI_Comm comm) {
  return scatter(Blocking{}, in, count, type, out, out_count, out_type, root, comm, [&] {
    return PMPI_Scatter_c(in, count, type, out, out_count, out_type, root, comm);
  });
}

int MPI_Scatterv_c(const void* in, const MPI_Count counts[], const MPI_Aint places[],
                   MPI_Datatype type, void* out, MPI_Count out_count, MPI_Datatype out_type,
                   int root, MPI_Comm comm) {
  return scatterv(Blocking{}, in, counts, places, type, out, out_count, out_type, root, comm, [&] {
    return PMPI_Scatterv_c(in, counts, places, type, out, out_count, out_type, root, comm);
  });
}

int MPI_Alltoall_c(const void* in, MPI_Count in_count, MPI_Datatype in_type, void* out,
                   MPI_Count count, MPI_Datatype type, MPI_Comm comm) {
  return all_to_all(Blocking{}, in, in_count, in_type, out, count, type, comm,
                    [&] { return PMPI_Alltoall_c(in, in_count, in_type, out, count, type, comm); });
}

int MPI_Alltoallv_c(const void* in, const MPI_Count in_counts[], const MPI_Aint in_places[],
                    MPI_Datatype in_type, void* out, const MPI_Count counts[],
                    const MPI_Aint places[], MPI_Datatype type, MPI_Comm comm) {
  return all_to_allv(
      Blocking{}, in, in_counts, in_places, in_type, out, counts, places, type, comm, [&] {
        return PMPI_Alltoallv_c(in, in_counts, in_places, in_type, out, counts, places, type, comm);
      });
}

}  // extern "C"

}  // namespace tutti::mpi
