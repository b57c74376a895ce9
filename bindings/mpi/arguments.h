// Detects arguments that the MPI library rejects, as far as one rank can detect them. Such a call
// is left to the MPI library: the program gets the expected error class, text and handler, and
// Tutti has exchanged nothing yet.
#pragma once

#include <mpi.h>

#include <cstdint>

namespace tutti::mpi {

// A communicator of this rank alone whose error handler returns errors, for queries whose answer is
// an error. One object exists from MPI_Init to MPI_Finalize.
class QuietComm {
 public:
  QuietComm();
  ~QuietComm();
  QuietComm(const QuietComm&) = delete;
  QuietComm& operator=(const QuietComm&) = delete;
};
// Returns the communicator of QuietComm; MPI_COMM_SELF if there is none.
MPI_Comm quiet_comm();

// Returns true if `rank` is a rank of the communicator; false for MPI_ROOT.
bool has_rank(MPI_Comm comm, int rank);
// Returns true if `rank` is the calling rank.
bool is_own_rank(MPI_Comm comm, int rank);

// Returns true if `data` is invalid for `count` elements of the type: MPI_IN_PLACE, or null (unless
// the type has absolute addresses).
bool is_refused_place(const void* data, int64_t count, MPI_Datatype type);
// Returns true if is_refused_place() returns true, `count` is negative, or the type is null or not
// committed.
bool is_refused(const void* data, int64_t count, MPI_Datatype type);
// Returns is_refused(), except that MPI_IN_PLACE is valid.
inline bool is_refused_unless_in_place(const void* data, int64_t count, MPI_Datatype type) {
  return data != MPI_IN_PLACE && is_refused(data, count, type);
}
// Returns true if this rank's own buffer in a call with a root is invalid. Only the root may pass
// MPI_IN_PLACE.
inline bool is_refused_own(bool is_root, const void* data, int64_t count, MPI_Datatype type) {
  return is_root ? is_refused_unless_in_place(data, count, type) : is_refused(data, count, type);
}
// Returns true if a buffer with one block per rank is invalid. Block i has counts[i] elements.
template <typename Count>
bool is_refused(const void* data, const Count* counts, int blocks, MPI_Datatype type) {
  int64_t total = 0;
  for (int i = 0; i < blocks; ++i) {
    if (counts[i] < 0) return true;
    total += counts[i];
  }
  return is_refused(data, total, type);
}
// Returns true if the MPI library rejects equal input and output addresses (MPICH does).
bool are_refused_aliases(const void* in, const void* out, int64_t count);

}  // namespace tutti::mpi
