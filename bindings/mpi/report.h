// Counts the program's collective and one-sided calls: how many Tutti served, how many fell through
// to the MPI library, and why.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tutti::mpi {

enum class Call : uint8_t {
  allreduce,
  reduce,
  bcast,
  allgather,
  allgatherv,
  gather,
  gatherv,
  scatter,
  scatterv,
  alltoall,
  alltoallv,
  reduce_scatter,
  reduce_scatter_block,
  scan,
  exscan,
  barrier,
  win_create,
  win_allocate,  // the last one that is taken by its size (ranges.h)
  win_fence,
  win_lock,
  win_lock_all,
  win_start,
  win_post,
  put,
  get,
  accumulate,
  get_accumulate,
  fetch_and_op,
  compare_and_swap,
  rput,
  rget,
  raccumulate,
  rget_accumulate,
};
inline constexpr size_t kRangedCalls = 18;
inline constexpr size_t kCalls = 33;

// MPI_Allreduce, MPI_Iallreduce, MPI_Allreduce_init.
enum class Form : uint8_t { blocking, starting, persistent };
inline constexpr size_t kForms = 3;

enum class Fate : uint8_t {
  through,       // Tutti did it
  size,          // of which the MPI library is faster (ranges.h, TUTTI_MPI_SMALLEST)
  type_or_op,    // a reduction that Tutti does not have
  communicator,  // of one rank, between groups, or with ranks of another job
  first_use,     // of a communicator by a call that must not block
  persistent,    // all of these are the MPI library's
  argument,      // wrong; the MPI library says so by its own means
  not_joined,    // before MPI_Init, or Tutti could not start
  memory,        // of a window, which its ranks do not share
  window,        // a call on a window that is the MPI library's
};
inline constexpr size_t kFates = 10;

// "Allreduce"
std::string_view name(Call call);
// "Iallreduce"
std::string name(Form form, Call call);

// True once the program's threads may call MPI at the same time, and so count().
void count_atomically(bool atomically);
void count(Form form, Call call, Fate fate);

// A table of this process's calls, a line for each kind that there was; empty: none at all.
std::string report();

}  // namespace tutti::mpi
