// The intercepted one-sided functions.
#include <mpi.h>

#include "bindings/mpi/accesses.h"

namespace tutti::mpi {

extern "C" {

int MPI_Put(const void* origin, int origin_count, MPI_Datatype origin_type, int rank,
            MPI_Aint place, int count, MPI_Datatype type, MPI_Win win) {
  return on_window(
      Call::put, win,
      [&] { return PMPI_Put(origin, origin_count, origin_type, rank, place, count, type, win); },
      [&](ServedWindow& window) {
        return put(window, {origin, origin_count, origin_type}, {rank, place, count, type});
      });
}

int MPI_Get(void* origin, int origin_count, MPI_Datatype origin_type, int rank, MPI_Aint place,
            int count, MPI_Datatype type, MPI_Win win) {
  return on_window(
      Call::get, win,
      [&] { return PMPI_Get(origin, origin_count, origin_type, rank, place, count, type, win); },
      [&](ServedWindow& window) {
        return get(window, {origin, origin_count, origin_type}, {rank, place, count, type});
      });
}

int MPI_Accumulate(const void* origin, int origin_count, MPI_Datatype origin_type, int rank,
                   MPI_Aint place, int count, MPI_Datatype type, MPI_Op op, MPI_Win win) {
  return on_window(
      Call::accumulate, win,
      [&] {
        return PMPI_Accumulate(origin, origin_count, origin_type, rank, place, count, type, op,
                               win);
      },
      [&](ServedWindow& window) {
        return accumulate(window, {origin, origin_count, origin_type}, {rank, place, count, type},
                          op);
      });
}

int MPI_Get_accumulate(const void* origin, int origin_count, MPI_Datatype origin_type, void* result,
                       int result_count, MPI_Datatype result_type, int rank, MPI_Aint place,
                       int count, MPI_Datatype type, MPI_Op op, MPI_Win win) {
  return on_window(
      Call::get_accumulate, win,
      [&] {
        return PMPI_Get_accumulate(origin, origin_count, origin_type, result, result_count,
                                   result_type, rank, place, count, type, op, win);
      },
      [&](ServedWindow& window) {
        return get_accumulate(window, {origin, origin_count, origin_type},
                              {result, result_count, result_type}, {rank, place, count, type}, op);
      });
}

int MPI_Rput(const void* origin, int origin_count, MPI_Datatype origin_type, int rank,
             MPI_Aint place, int count, MPI_Datatype type, MPI_Win win, MPI_Request* request) {
  return on_window(
      Call::rput, win, request,
      [&] {
        return PMPI_Rput(origin, origin_count, origin_type, rank, place, count, type, win, request);
      },
      [&](ServedWindow& window) {
        return put(window, {origin, origin_count, origin_type}, {rank, place, count, type});
      });
}

int MPI_Rget(void* origin, int origin_count, MPI_Datatype origin_type, int rank, MPI_Aint place,
             int count, MPI_Datatype type, MPI_Win win, MPI_Request* request) {
  return on_window(
      Call::rget, win, request,
      [&] {
        return PMPI_Rget(origin, origin_count, origin_type, rank, place, count, type, win, request);
      },
      [&](ServedWindow& window) {
        return get(window, {origin, origin_count, origin_type}, {rank, place, count, type});
      });
}

int MPI_Raccumulate(const void* origin, int origin_count, MPI_Datatype origin_type, int rank,
                    MPI_Aint place, int count, MPI_Datatype type, MPI_Op op, MPI_Win win,
                    MPI_Request* request) {
  return on_window(
      Call::raccumulate, win, request,
      [&] {
        return PMPI_Raccumulate(origin, origin_count, origin_type, rank, place, count, type, op,
                                win, request);
      },
      [&](ServedWindow& window) {
        return accumulate(window, {origin, origin_count, origin_type}, {rank, place, count, type},
                          op);
      });
}

int MPI_Rget_accumulate(const void* origin, int origin_count, MPI_Datatype origin_type,
                        void* result, int result_count, MPI_Datatype result_type, int rank,
                        MPI_Aint place, int count, MPI_Datatype type, MPI_Op op, MPI_Win win,
                        MPI_Request* request) {
  return on_window(
      Call::rget_accumulate, win, request,
      [&] {
        return PMPI_Rget_accumulate(origin, origin_count, origin_type, result, result_count,
                                    result_type, rank, place, count, type, op, win, request);
      },
      [&](ServedWindow& window) {
        return get_accumulate(window, {origin, origin_count, origin_type},
                              {result, result_count, result_type}, {rank, place, count, type}, op);
      });
}

int MPI_Fetch_and_op(const void* origin, void* result, MPI_Datatype type, int rank, MPI_Aint place,
                     MPI_Op op, MPI_Win win) {
  return on_window(
      Call::fetch_and_op, win,
      [&] { return PMPI_Fetch_and_op(origin, result, type, rank, place, op, win); },
      [&](ServedWindow& window) {
        return get_accumulate(window, {origin, 1, type}, {result, 1, type}, {rank, place, 1, type},
                              op);
      });
}

int MPI_Compare_and_swap(const void* origin, const void* compare, void* result, MPI_Datatype type,
                         int rank, MPI_Aint place, MPI_Win win) {
  return on_window(
      Call::compare_and_swap, win,
      [&] { return PMPI_Compare_and_swap(origin, compare, result, type, rank, place, win); },
      [&](ServedWindow& window) {
        return compare_and_swap(window, origin, compare, result, {rank, place, 1, type});
      });
}

}  // extern "C"

}  // namespace tutti::mpi
