// Arguments that the MPI library refuses, as far as one rank can see. A call that has one is the
// MPI library's: the error's class, its text and the handler are those that the program expects,
// and nothing was exchanged in Tutti.
#pragma once

#include <mpi.h>

#include <cstdint>

namespace tutti::mpi {

// A communicator of this rank alone that returns errors, for questions to the MPI library whose
// answer is an error. One object, from MPI_Init to MPI_Finalize.
class QuietComm {
 public:
  QuietComm();
  ~QuietComm();
  QuietComm(const QuietComm&) = delete;
  QuietComm& operator=(const QuietComm&) = delete;
};
// MPI_COMM_SELF where there is no QuietComm.
MPI_Comm quiet_comm();

// True if `rank` is a rank of the communicator. MPI_ROOT, of one between groups, is none.
bool has_rank(MPI_Comm comm, int rank);
// True if `rank` is the calling rank.
bool is_own_rank(MPI_Comm comm, int rank);

// True if `count` elements of the type cannot be at `data`: it is MPI_IN_PLACE, or null (unless the
// type has absolute addresses).
bool is_refused_place(const void* data, int64_t count, MPI_Datatype type);
// The same; or `count` is negative, or the type is null or not committed.
bool is_refused(const void* data, int64_t count, MPI_Datatype type);
// The same, but `data` may be MPI_IN_PLACE.
inline bool is_refused_apart(const void* data, int64_t count, MPI_Datatype type) {
  return data != MPI_IN_PLACE && is_refused(data, count, type);
}
// The own buffer of a call with a root: the root may give MPI_IN_PLACE.
inline bool is_refused_own(bool is_root, const void* data, int64_t count, MPI_Datatype type) {
  return is_root ? is_refused_apart(data, count, type) : is_refused(data, count, type);
}
// The same for a block of elements to or from each rank.
template <typename Count>
bool is_refused(const void* data, const Count* counts, int blocks, MPI_Datatype type) {
  int64_t total = 0;
  for (int i = 0; i < blocks; ++i) {
    if (counts[i] < 0) return true;
    total += counts[i];
  }
  return is_refused(data, total, type);
}
// True if the MPI library refuses that input and output are the same memory (MPICH does).
bool are_refused_aliases(const void* in, const void* out, int64_t count);

}  // namespace tutti::mpi
