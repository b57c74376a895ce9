// The window functions with MPI 4's large counts, for libraries that have them.
#include <mpi.h>

#include "bindings/mpi/accesses.h"

namespace tutti::mpi {

extern "C" {

int MPI_Win_create_c(void* base, MPI_Aint bytes, MPI_Aint unit, MPI_Info info, MPI_Comm comm,
                     MPI_Win* win) {
  return create_window(base, bytes, unit, info, comm, win,
                       [&] { return PMPI_Win_create_c(base, bytes, unit, info, comm, win); });
}

int MPI_Win_allocate_c(MPI_Aint bytes, MPI_Aint unit, MPI_Info info, MPI_Comm comm, void* base,
                       MPI_Win* win) {
  return allocate_window(bytes, unit, info, comm, base, win,
                         [&] { return PMPI_Win_allocate_c(bytes, unit, info, comm, base, win); });
}

int MPI_Put_c(const void* origin, MPI_Count origin_count, MPI_Datatype origin_type, int rank,
              MPI_Aint place, MPI_Count count, MPI_Datatype type, MPI_Win win) {
  return on_window(
      Call::put, win,
      [&] { return PMPI_Put_c(origin, origin_count, origin_type, rank, place, count, type, win); },
      [&](ServedWindow& window) {
        return put(window, {origin, origin_count, origin_type}, {rank, place, count, type});
      });
}

int MPI_Get_c(void* origin, MPI_Count origin_count, MPI_Datatype origin_type, int rank,
              MPI_Aint place, MPI_Count count, MPI_Datatype type, MPI_Win win) {
  return on_window(
      Call::get, win,
      [&] { return PMPI_Get_c(origin, origin_count, origin_type, rank, place, count, type, win); },
      [&](ServedWindow& window) {
        return get(window, {origin, origin_count, origin_type}, {rank, place, count, type});
      });
}

int MPI_Accumulate_c(const void* origin, MPI_Count origin_count, MPI_Datatype origin_type, int rank,
                     MPI_Aint place, MPI_Count count, MPI_Datatype type, MPI_Op op, MPI_Win win) {
  return on_window(
      Call::accumulate, win,
      [&] {
        return PMPI_Accumulate_c(origin, origin_count, origin_type, rank, place, count, type, op,
                                 win);
      },
      [&](ServedWindow& window) {
        return accumulate(window, {origin, origin_count, origin_type}, {rank, place, count, type},
                          op);
      });
}

int MPI_Get_accumulate_c(const void* origin, MPI_Count origin_count, MPI_Datatype origin_type,
                         void* result, MPI_Count result_count, MPI_Datatype result_type, int rank,
                         MPI_Aint place, MPI_Count count, MPI_Datatype type, MPI_Op op,
                         MPI_Win win) {
  return on_window(
      Call::get_accumulate, win,
      [&] {
        return PMPI_Get_accumulate_c(origin, origin_count, origin_type, result, result_count,
                                     result_type, rank, place, count, type, op, win);
      },
      [&](ServedWindow& window) {
        return get_accumulate(window, {origin, origin_count, origin_type},
                              {result, result_count, result_type}, {rank, place, count, type}, op);
      });
}

int MPI_Rput_c(const void* origin, MPI_Count origin_count, MPI_Datatype origin_type, int rank,
               MPI_Aint place, MPI_Count count, MPI_Datatype type, MPI_Win win,
               MPI_Request* request) {
  return on_window(
      Call::rput, win, request,
      [&] {
        return PMPI_Rput_c(origin, origin_count, origin_type, rank, place, count, type, win,
                           request);
      },
      [&](ServedWindow& window) {
        return put(window, {origin, origin_count, origin_type}, {rank, place, count, type});
      });
}

int MPI_Rget_c(void* origin, MPI_Count origin_count, MPI_Datatype origin_type, int rank,
               MPI_Aint place, MPI_Count count, MPI_Datatype type, MPI_Win win,
               MPI_Request* request) {
  return on_window(
      Call::rget, win, request,
      [&] {
        return PMPI_Rget_c(origin, origin_count, origin_type, rank, place, count, type, win,
                           request);
      },
      [&](ServedWindow& window) {
        return get(window, {origin, origin_count, origin_type}, {rank, place, count, type});
      });
}

int MPI_Raccumulate_c(const void* origin, MPI_Count origin_count, MPI_Datatype origin_type,
                      int rank, MPI_Aint place, MPI_Count count, MPI_Datatype type, MPI_Op op,
                      MPI_Win win, MPI_Request* request) {
  return on_window(
      Call::raccumulate, win, request,
      [&] {
        return PMPI_Raccumulate_c(origin, origin_count, origin_type, rank, place, count, type, op,
                                  win, request);
      },
      [&](ServedWindow& window) {
        return accumulate(window, {origin, origin_count, origin_type}, {rank, place, count, type},
                          op);
      });
}

int MPI_Rget_accumulate_c(const void* origin, MPI_Count origin_count, MPI_Datatype origin_type,
                          void* result, MPI_Count result_count, MPI_Datatype result_type, int rank,
                          MPI_Aint place, MPI_Count count, MPI_Datatype type, MPI_Op op,
                          MPI_Win win, MPI_Request* request) {
  return on_window(
      Call::rget_accumulate, win, request,
      [&] {
        return PMPI_Rget_accumulate_c(origin, origin_count, origin_type, result, result_count,
                                      result_type, rank, place, count, type, op, win, request);
      },
      [&](ServedWindow& window) {
        return get_accumulate(window, {origin, origin_count, origin_type},
                              {result, result_count, result_type}, {rank, place, count, type}, op);
      });
}

}  // extern "C"

}  // namespace tutti::mpi
