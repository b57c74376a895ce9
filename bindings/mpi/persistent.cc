// Intercepts MPI 4's persistent calls if the MPI library has them: counts the calls, and leaves
// them to the library.
#include <mpi.h>

#include "bindings/mpi/report.h"

namespace tutti::mpi {

extern "C" {

int MPI_Barrier_init(MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  tutti::mpi::count(Form::persistent, Call::barrier, Outcome::persistent);
  return PMPI_Barrier_init(comm, info, request);
}

int MPI_Allreduce_init(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op,
                       MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  tutti::mpi::count(Form::persistent, Call::allreduce, Outcome::persistent);
  return PMPI_Allreduce_init(in, out, count, type, op, comm, info, request);
}

int MPI_Reduce_init(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, int root,
                    MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  tutti::mpi::count(Form::persistent, Call::reduce, Outcome::persistent);
  return PMPI_Reduce_init(in, out, count, type, op, root, comm, info, request);
}

int MPI_Scan_init(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                  MPI_Info info, MPI_Request* request) {
  tutti::mpi::count(Form::persistent, Call::scan, Outcome::persistent);
  return PMPI_Scan_init(in, out, count, type, op, comm, info, request);
}

int MPI_Exscan_init(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op,
                    MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  tutti::mpi::count(Form::persistent, Call::exscan, Outcome::persistent);
  return PMPI_Exscan_init(in, out, count, type, op, comm, info, request);
}

int MPI_Reduce_scatter_block_init(const void* in, void* out, int count, MPI_Datatype type,
                                  MPI_Op op, MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  tutti::mpi::count(Form::persistent, Call::reduce_scatter_block, Outcome::persistent);
  return PMPI_Reduce_scatter_block_init(in, out, count, type, op, comm, info, request);
}

int MPI_Reduce_scatter_init(const void* in, void* out, const int counts[], MPI_Datatype type,
                            MPI_Op op, MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  tutti::mpi::count(Form::persistent, Call::reduce_scatter, Outcome::persistent);
  return PMPI_Reduce_scatter_init(in, out, counts, type, op, comm, info, request);
}

int MPI_Bcast_init(void* data, int count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Info info,
                   MPI_Request* request) {
  tutti::mpi::count(Form::persistent, Call::bcast, Outcome::persistent);
  return PMPI_Bcast_init(data, count, type, root, comm, info, request);
}

int MPI_Allgather_init(const void* in, int in_count, MPI_Datatype in_type, void* out, int count,
                       MPI_Datatype type, MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  tutti::mpi::count(Form::persistent, Call::allgather, Outcome::persistent);
  return PMPI_Allgather_init(in, in_count, in_type, out, count, type, comm, info, request);
}

int MPI_Allgatherv_init(const void* in, int in_count, MPI_Datatype in_type, void* out,
                        const int counts[], const int places[], MPI_Datatype type, MPI_Comm comm,
                        MPI_Info info, MPI_Request* request) {
  tutti::mpi::count(Form::persistent, Call::allgatherv, Outcome::persistent);
  return PMPI_Allgatherv_init(in, in_count, in_type, out, counts, places, type, comm, info,
                              request);
}

int MPI_Gather_init(const void* in, int in_count, MPI_Datatype in_type, void* out, int count,
                    MPI_Datatype type, int root, MPI_Comm comm, MPI_Info info,
                    MPI_Request* request) {
  tutti::mpi::count(Form::persistent, Call::gather, Outcome::persistent);
  return PMPI_Gather_init(in, in_count, in_type, out, count, type, root, comm, info, request);
}

int MPI_Gatherv_init(const void* in, int in_count, MPI_Datatype in_type, void* out,
                     const int counts[], const int places[], MPI_Datatype type, int root,
                     MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  tutti::mpi::count(Form::persistent, Call::gatherv, Outcome::persistent);
  return PMPI_Gatherv_init(in, in_count, in_type, out, counts, places, type, root, comm, info,
                           request);
}

int MPI_Scatter_init(const void* in, int count, MPI_Datatype type, void* out, int out_count,
                     MPI_Datatype out_type, int root, MPI_Comm comm, MPI_Info info,
                     MPI_Request* request) {
  tutti::mpi::count(Form::persistent, Call::scatter, Outcome::persistent);
  return PMPI_Scatter_init(in, count, type, out, out_count, out_type, root, comm, info, request);
}

int MPI_Scatterv_init(const void* in, const int counts[], const int places[], MPI_Datatype type,
                      void* out, int out_count, MPI_Datatype out_type, int root, MPI_Comm comm,
                      MPI_Info info, MPI_Request* request) {
  tutti::mpi::count(Form::persistent, Call::scatterv, Outcome::persistent);
  return PMPI_Scatterv_init(in, counts, places, type, out, out_count, out_type, root, comm, info,
                            request);
}

int MPI_Alltoall_init(const void* in, int in_count, MPI_Datatype in_type, void* out, int count,
                      MPI_Datatype type, MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  tutti::mpi::count(Form::persistent, Call::alltoall, Outcome::persistent);
  return PMPI_Alltoall_init(in, in_count, in_type, out, count, type, comm, info, request);
}

int MPI_Alltoallv_init(const void* in, const int in_counts[], const int in_places[],
                       MPI_Datatype in_type, void* out, const int counts[], const int places[],
                       MPI_Datatype type, MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  tutti::mpi::count(Form::persistent, Call::alltoallv, Outcome::persistent);
  return PMPI_Alltoallv_init(in, in_counts, in_places, in_type, out, counts, places, type, comm,
                             info, request);
}

int MPI_Allreduce_init_c(const void* in, void* out, MPI_Count count, MPI_Datatype type, MPI_Op op,
                         MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  tutti::mpi::count(Form::persistent, Call::allreduce, Outcome::persistent);
  return PMPI_Allreduce_init_c(in, out, count, type, op, comm, info, request);
}

int MPI_Reduce_init_c(const void* in, void* out, MPI_Count count, MPI_Datatype type, MPI_Op op,
                      int root, MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  tutti::mpi::count(Form::persistent, Call::reduce, Outcome::persistent);
  return PMPI_Reduce_init_c(in, out, count, type, op, root, comm, info, request);
}

int MPI_Scan_init_c(const void* in, void* out, MPI_Count count, MPI_Datatype type, MPI_Op op,
                    MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  tutti::mpi::count(Form::persistent, Call::scan, Outcome::persistent);
  return PMPI_Scan_init_c(in, out, count, type, op, comm, info, request);
}

int MPI_Exscan_init_c(const void* in, void* out, MPI_Count count, MPI_Datatype type, MPI_Op op,
                      MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  tutti::mpi::count(Form::persistent, Call::exscan, Outcome::persistent);
  return PMPI_Exscan_init_c(in, out, count, type, op, comm, info, request);
}

int MPI_Reduce_scatter_block_init_c(const void* in, void* out, MPI_Count count, MPI_Datatype type,
                                    MPI_Op op, MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  tutti::mpi::count(Form::persistent, Call::reduce_scatter_block, Outcome::persistent);
  return PMPI_Reduce_scatter_block_init_c(in, out, count, type, op, comm, info, request);
}

int MPI_Reduce_scatter_init_c(const void* in, void* out, const MPI_Count counts[],
                              MPI_Datatype type, MPI_Op op, MPI_Comm comm, MPI_Info info,
                              MPI_Request* request) {
  tutti::mpi::count(Form::persistent, Call::reduce_scatter, Outcome::persistent);
  return PMPI_Reduce_scatter_init_c(in, out, counts, type, op, comm, info, request);
}

int MPI_Bcast_init_c(void* data, MPI_Count count, MPI_Datatype type, int root, MPI_Comm comm,
                     MPI_Info info, MPI_Request* request) {
  tutti::mpi::count(Form::persistent, Call::bcast, Outcome::persistent);
  return PMPI_Bcast_init_c(data, count, type, root, comm, info, request);
}

int MPI_Allgather_init_c(const void* in, MPI_Count in_count, MPI_Datatype in_type, void* out,
                         MPI_Count count, MPI_Datatype type, MPI_Comm comm, MPI_Info info,
                         MPI_Request* request) {
  tutti::mpi::count(Form::persistent, Call::allgather, Outcome::persistent);
  return PMPI_Allgather_init_c(in, in_count, in_type, out, count, type, comm, info, request);
}

int MPI_Allgatherv_init_c(const void* in, MPI_Count in_count, MPI_Datatype in_type, void* out,
                          const MPI_Count counts[], const MPI_Aint places[], MPI_Datatype type,
                          MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  tutti::mpi::count(Form::persistent, Call::allgatherv, Outcome::persistent);
  return PMPI_Allgatherv_init_c(in, in_count, in_type, out, counts, places, type, comm, info,
                                request);
}

int MPI_Gather_init_c(const void* in, MPI_Count in_count, MPI_Datatype in_type, void* out,
                      MPI_Count count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Info info,
                      MPI_Request* request) {
  tutti::mpi::count(Form::persistent, Call::gather, Outcome::persistent);
  return PMPI_Gather_init_c(in, in_count, in_type, out, count, type, root, comm, info, request);
}

int MPI_Gatherv_init_c(const void* in, MPI_Count in_count, MPI_Datatype in_type, void* out,
                       const MPI_Count counts[], const MPI_Aint places[], MPI_Datatype type,
                       int root, MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  tutti::mpi::count(Form::persistent, Call::gatherv, Outcome::persistent);
  return PMPI_Gatherv_init_c(in, in_count, in_type, out, counts, places, type, root, comm, info,
                             request);
}

int MPI_Scatter_init_c(const void* in, MPI_Count count, MPI_Datatype type, void* out,
                       MPI_Count out_count, MPI_Datatype out_type, int root, MPI_Comm comm,
                       MPI_Info info, MPI_Request* request) {
  tutti::mpi::count(Form::persistent, Call::scatter, Outcome::persistent);
  return PMPI_Scatter_init_c(in, count, type, out, out_count, out_type, root, comm, info, request);
}

int MPI_Scatterv_init_c(const void* in, const MPI_Count counts[], const MPI_Aint places[],
                        MPI_Datatype type, void* out, MPI_Count out_count, MPI_Datatype out_type,
                        int root, MPI_Comm comm, MPI_Info info, MPI_Request* request) {
  tutti::mpi::count(Form::persistent, Call::scatterv, Outcome::persistent);
  return PMPI_Scatterv_init_c(in, counts, places, type, out, out_count, out_type, root, comm, info,
                              request);
}

int MPI_Alltoall_init_c(const void* in, MPI_Count in_count, MPI_Datatype in_type, void* out,
                        MPI_Count count, MPI_Datatype type, MPI_Comm comm, MPI_Info info,
                        MPI_Request* request) {
  tutti::mpi::count(Form::persistent, Call::alltoall, Outcome::persistent);
  return PMPI_Alltoall_init_c(in, in_count, in_type, out, count, type, comm, info, request);
}

int MPI_Alltoallv_init_c(const void* in, const MPI_Count in_counts[], const MPI_Aint in_places[],
                         MPI_Datatype in_type, void* out, const MPI_Count counts[],
                         const MPI_Aint places[], MPI_Datatype type, MPI_Comm comm, MPI_Info info,
                         MPI_Request* request) {
  tutti::mpi::count(Form::persistent, Call::alltoallv, Outcome::persistent);
  return PMPI_Alltoallv_init_c(in, in_counts, in_places, in_type, out, counts, places, type, comm,
                               info, request);
}

}  // extern "C"

}  // namespace tutti::mpi
