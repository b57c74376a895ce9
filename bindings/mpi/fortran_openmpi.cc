// Intercepts Open MPI's Fortran functions, because they do not call C functions that could be
// intercepted. mpif.h and `use mpi` have functions mpi_allreduce_ and so on; `use mpi_f08` calls
// ompi_allreduce_f. Fortran's non-blocking calls are left to the MPI library, which also waits for
// them.
#include <dlfcn.h>
#include <mpi.h>

#include <array>

namespace {

// Returns the C address. Fortran's MPI_IN_PLACE and MPI_BOTTOM are addresses of variables in the
// library.
void* buffer(void* given) {
  static const std::array<void*, 2> known = {::dlsym(RTLD_DEFAULT, "mpi_fortran_in_place_"),
                                             ::dlsym(RTLD_DEFAULT, "mpi_fortran_bottom_")};
  if (given != nullptr && given == known[0]) return MPI_IN_PLACE;
  if (given != nullptr && given == known[1]) return MPI_BOTTOM;
  return given;
}

void set_status(MPI_Fint* status, int result) {
  if (status != nullptr) *status = result;
}

}  // namespace

extern "C" {

void mpi_init_(MPI_Fint* status) { set_status(status, MPI_Init(nullptr, nullptr)); }

void ompi_init_f(MPI_Fint* status) __attribute__((alias("mpi_init_")));

void mpi_init_thread_(MPI_Fint* required, MPI_Fint* provided, MPI_Fint* status) {
  set_status(status, MPI_Init_thread(nullptr, nullptr, *required, provided));
}

void ompi_init_thread_f(MPI_Fint* required, MPI_Fint* provided, MPI_Fint* status)
    __attribute__((alias("mpi_init_thread_")));

void mpi_finalize_(MPI_Fint* status) { set_status(status, MPI_Finalize()); }

void ompi_finalize_f(MPI_Fint* status) __attribute__((alias("mpi_finalize_")));

void mpi_barrier_(MPI_Fint* comm, MPI_Fint* status) {
  set_status(status, MPI_Barrier(PMPI_Comm_f2c(*comm)));
}

void ompi_barrier_f(MPI_Fint* comm, MPI_Fint* status) __attribute__((alias("mpi_barrier_")));

void mpi_allreduce_(void* in, void* out, MPI_Fint* count, MPI_Fint* type, MPI_Fint* op,
                    MPI_Fint* comm, MPI_Fint* status) {
  set_status(status, MPI_Allreduce(buffer(in), buffer(out), *count, PMPI_Type_f2c(*type),
                                   PMPI_Op_f2c(*op), PMPI_Comm_f2c(*comm)));
}

void ompi_allreduce_f(void* in, void* out, MPI_Fint* count, MPI_Fint* type, MPI_Fint* op,
                      MPI_Fint* comm, MPI_Fint* status) __attribute__((alias("mpi_allreduce_")));

void mpi_reduce_(void* in, void* out, MPI_Fint* count, MPI_Fint* type, MPI_Fint* op, MPI_Fint* root,
                 MPI_Fint* comm, MPI_Fint* status) {
  set_status(status, MPI_Reduce(buffer(in), buffer(out), *count, PMPI_Type_f2c(*type),
                                PMPI_Op_f2c(*op), *root, PMPI_Comm_f2c(*comm)));
}

void ompi_reduce_f(void* in, void* out, MPI_Fint* count, MPI_Fint* type, MPI_Fint* op,
                   MPI_Fint* root, MPI_Fint* comm, MPI_Fint* status)
    __attribute__((alias("mpi_reduce_")));

void mpi_scan_(void* in, void* out, MPI_Fint* count, MPI_Fint* type, MPI_Fint* op, MPI_Fint* comm,
               MPI_Fint* status) {
  set_status(status, MPI_Scan(buffer(in), buffer(out), *count, PMPI_Type_f2c(*type),
                              PMPI_Op_f2c(*op), PMPI_Comm_f2c(*comm)));
}

void ompi_scan_f(void* in, void* out, MPI_Fint* count, MPI_Fint* type, MPI_Fint* op, MPI_Fint* comm,
                 MPI_Fint* status) __attribute__((alias("mpi_scan_")));

void mpi_exscan_(void* in, void* out, MPI_Fint* count, MPI_Fint* type, MPI_Fint* op, MPI_Fint* comm,
                 MPI_Fint* status) {
  set_status(status, MPI_Exscan(buffer(in), buffer(out), *count, PMPI_Type_f2c(*type),
                                PMPI_Op_f2c(*op), PMPI_Comm_f2c(*comm)));
}

void ompi_exscan_f(void* in, void* out, MPI_Fint* count, MPI_Fint* type, MPI_Fint* op,
                   MPI_Fint* comm, MPI_Fint* status) __attribute__((alias("mpi_exscan_")));

void mpi_reduce_scatter_block_(void* in, void* out, MPI_Fint* count, MPI_Fint* type, MPI_Fint* op,
                               MPI_Fint* comm, MPI_Fint* status) {
  set_status(status, MPI_Reduce_scatter_block(buffer(in), buffer(out), *count, PMPI_Type_f2c(*type),
                                              PMPI_Op_f2c(*op), PMPI_Comm_f2c(*comm)));
}

void ompi_reduce_scatter_block_f(void* in, void* out, MPI_Fint* count, MPI_Fint* type, MPI_Fint* op,
                                 MPI_Fint* comm, MPI_Fint* status)
    __attribute__((alias("mpi_reduce_scatter_block_")));

void mpi_reduce_scatter_(void* in, void* out, MPI_Fint* counts, MPI_Fint* type, MPI_Fint* op,
                         MPI_Fint* comm, MPI_Fint* status) {
  set_status(status, MPI_Reduce_scatter(buffer(in), buffer(out), counts, PMPI_Type_f2c(*type),
                                        PMPI_Op_f2c(*op), PMPI_Comm_f2c(*comm)));
}

void ompi_reduce_scatter_f(void* in, void* out, MPI_Fint* counts, MPI_Fint* type, MPI_Fint* op,
                           MPI_Fint* comm, MPI_Fint* status)
    __attribute__((alias("mpi_reduce_scatter_")));

void mpi_bcast_(void* data, MPI_Fint* count, MPI_Fint* type, MPI_Fint* root, MPI_Fint* comm,
                MPI_Fint* status) {
  set_status(status,
             MPI_Bcast(buffer(data), *count, PMPI_Type_f2c(*type), *root, PMPI_Comm_f2c(*comm)));
}

void ompi_bcast_f(void* data, MPI_Fint* count, MPI_Fint* type, MPI_Fint* root, MPI_Fint* comm,
                  MPI_Fint* status) __attribute__((alias("mpi_bcast_")));

void mpi_allgather_(void* in, MPI_Fint* in_count, MPI_Fint* in_type, void* out, MPI_Fint* count,
                    MPI_Fint* type, MPI_Fint* comm, MPI_Fint* status) {
  set_status(status, MPI_Allgather(buffer(in), *in_count, PMPI_Type_f2c(*in_type), buffer(out),
                                   *count, PMPI_Type_f2c(*type), PMPI_Comm_f2c(*comm)));
}

void ompi_allgather_f(void* in, MPI_Fint* in_count, MPI_Fint* in_type, void* out, MPI_Fint* count,
                      MPI_Fint* type, MPI_Fint* comm, MPI_Fint* status)
    __attribute__((alias("mpi_allgather_")));

void mpi_allgatherv_(void* in, MPI_Fint* in_count, MPI_Fint* in_type, void* out, MPI_Fint* counts,
                     MPI_Fint* places, MPI_Fint* type, MPI_Fint* comm, MPI_Fint* status) {
  set_status(status, MPI_Allgatherv(buffer(in), *in_count, PMPI_Type_f2c(*in_type), buffer(out),
                                    counts, places, PMPI_Type_f2c(*type), PMPI_Comm_f2c(*comm)));
}

void ompi_allgatherv_f(void* in, MPI_Fint* in_count, MPI_Fint* in_type, void* out, MPI_Fint* counts,
                       MPI_Fint* places, MPI_Fint* type, MPI_Fint* comm, MPI_Fint* status)
    __attribute__((alias("mpi_allgatherv_")));

void mpi_gather_(void* in, MPI_Fint* in_count, MPI_Fint* in_type, void* out, MPI_Fint* count,
                 MPI_Fint* type, MPI_Fint* root, MPI_Fint* comm, MPI_Fint* status) {
  set_status(status, MPI_Gather(buffer(in), *in_count, PMPI_Type_f2c(*in_type), buffer(out), *count,
                                PMPI_Type_f2c(*type), *root, PMPI_Comm_f2c(*comm)));
}

void ompi_gather_f(void* in, MPI_Fint* in_count, MPI_Fint* in_type, void* out, MPI_Fint* count,
                   MPI_Fint* type, MPI_Fint* root, MPI_Fint* comm, MPI_Fint* status)
    __attribute__((alias("mpi_gather_")));

void mpi_gatherv_(void* in, MPI_Fint* in_count, MPI_Fint* in_type, void* out, MPI_Fint* counts,
                  MPI_Fint* places, MPI_Fint* type, MPI_Fint* root, MPI_Fint* comm,
                  MPI_Fint* status) {
  set_status(status,
             MPI_Gatherv(buffer(in), *in_count, PMPI_Type_f2c(*in_type), buffer(out), counts,
                         places, PMPI_Type_f2c(*type), *root, PMPI_Comm_f2c(*comm)));
}

void ompi_gatherv_f(void* in, MPI_Fint* in_count, MPI_Fint* in_type, void* out, MPI_Fint* counts,
                    MPI_Fint* places, MPI_Fint* type, MPI_Fint* root, MPI_Fint* comm,
                    MPI_Fint* status) __attribute__((alias("mpi_gatherv_")));

void mpi_scatter_(void* in, MPI_Fint* count, MPI_Fint* type, void* out, MPI_Fint* out_count,
                  MPI_Fint* out_type, MPI_Fint* root, MPI_Fint* comm, MPI_Fint* status) {
  set_status(status, MPI_Scatter(buffer(in), *count, PMPI_Type_f2c(*type), buffer(out), *out_count,
                                 PMPI_Type_f2c(*out_type), *root, PMPI_Comm_f2c(*comm)));
}

void ompi_scatter_f(void* in, MPI_Fint* count, MPI_Fint* type, void* out, MPI_Fint* out_count,
                    MPI_Fint* out_type, MPI_Fint* root, MPI_Fint* comm, MPI_Fint* status)
    __attribute__((alias("mpi_scatter_")));

void mpi_scatterv_(void* in, MPI_Fint* counts, MPI_Fint* places, MPI_Fint* type, void* out,
                   MPI_Fint* out_count, MPI_Fint* out_type, MPI_Fint* root, MPI_Fint* comm,
                   MPI_Fint* status) {
  set_status(status,
             MPI_Scatterv(buffer(in), counts, places, PMPI_Type_f2c(*type), buffer(out), *out_count,
                          PMPI_Type_f2c(*out_type), *root, PMPI_Comm_f2c(*comm)));
}

void ompi_scatterv_f(void* in, MPI_Fint* counts, MPI_Fint* places, MPI_Fint* type, void* out,
                     MPI_Fint* out_count, MPI_Fint* out_type, MPI_Fint* root, MPI_Fint* comm,
                     MPI_Fint* status) __attribute__((alias("mpi_scatterv_")));

void mpi_alltoall_(void* in, MPI_Fint* in_count, MPI_Fint* in_type, void* out, MPI_Fint* count,
                   MPI_Fint* type, MPI_Fint* comm, MPI_Fint* status) {
  set_status(status, MPI_Alltoall(buffer(in), *in_count, PMPI_Type_f2c(*in_type), buffer(out),
                                  *count, PMPI_Type_f2c(*type), PMPI_Comm_f2c(*comm)));
}

void ompi_alltoall_f(void* in, MPI_Fint* in_count, MPI_Fint* in_type, void* out, MPI_Fint* count,
                     MPI_Fint* type, MPI_Fint* comm, MPI_Fint* status)
    __attribute__((alias("mpi_alltoall_")));

void mpi_alltoallv_(void* in, MPI_Fint* in_counts, MPI_Fint* in_places, MPI_Fint* in_type,
                    void* out, MPI_Fint* counts, MPI_Fint* places, MPI_Fint* type, MPI_Fint* comm,
                    MPI_Fint* status) {
  set_status(status,
             MPI_Alltoallv(buffer(in), in_counts, in_places, PMPI_Type_f2c(*in_type), buffer(out),
                           counts, places, PMPI_Type_f2c(*type), PMPI_Comm_f2c(*comm)));
}

void ompi_alltoallv_f(void* in, MPI_Fint* in_counts, MPI_Fint* in_places, MPI_Fint* in_type,
                      void* out, MPI_Fint* counts, MPI_Fint* places, MPI_Fint* type, MPI_Fint* comm,
                      MPI_Fint* status) __attribute__((alias("mpi_alltoallv_")));

}  // extern "C"
