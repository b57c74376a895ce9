// What became of the program's collective calls: how many went through Tutti, how many went on to
// the MPI library, and why.
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
};
inline constexpr size_t kCalls = 16;

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
};
inline constexpr size_t kFates = 8;

// "Allreduce"
std::string_view name(Call call);
// "Iallreduce"
std::string name(Form form, Call call);

// Any thread may call.
void count(Form form, Call call, Fate fate);

// A table of this process's calls, a line for each kind that there was; empty: none at all.
std::string report();

}  // namespace tutti::mpi
