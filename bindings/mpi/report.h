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
  win_allocate,  // the last of the calls that are selected by size (ranges.h)
  win_fence,
  win_lock,
  win_lock_all,
  win_start,
  win_post,
  win_free,  // not counted; only errors name it
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
inline constexpr size_t kCalls = 34;

// Form of a call, for example MPI_Allreduce, MPI_Iallreduce, MPI_Allreduce_init.
enum class Form : uint8_t { blocking, starting, persistent };
inline constexpr size_t kForms = 3;

enum class Outcome : uint8_t {
  through,       // handled by Tutti
  size,          // the MPI library is faster at this size (ranges.h, TUTTI_MPI_SMALLEST)
  type_or_op,    // a reduction that Tutti does not support
  communicator,  // one rank, an intercommunicator, or ranks of another job
  first_use,     // first use of a communicator by a call that must not block
  persistent,    // persistent calls are left to the MPI library
  argument,      // an invalid argument, which the MPI library reports
  not_joined,    // before MPI_Init, or Tutti could not start
  memory,        // window memory that the ranks do not share
  window,        // a call on a window of the MPI library
};
inline constexpr size_t kOutcomes = 10;

// Returns MPI's name of the call without prefix: "Allreduce".
std::string_view name(Call call);
// Returns MPI's name of the call in this form: "Iallreduce".
std::string name(Form form, Call call);

// Makes count() atomic if `atomically`, for programs whose threads may call MPI concurrently.
void count_atomically(bool atomically);
void count(Form form, Call call, Outcome outcome);

// Returns a table of this process's calls with one line per MPI function; empty if there were no
// calls.
std::string report();

}  // namespace tutti::mpi
