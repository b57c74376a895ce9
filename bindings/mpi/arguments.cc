#include "bindings/mpi/arguments.h"

#include <array>

#include "bindings/mpi/values.h"

namespace tutti::mpi {

namespace {

// The QuietComm's communicator, valid from MPI_Init to MPI_Finalize.
MPI_Comm quiet = MPI_COMM_NULL;
bool refuses_aliases = false;

// Returns true if the type is committed. MPI has no query for this, but MPI_Pack of no elements
// rejects an uncommitted type.
bool is_committed(MPI_Datatype type) {
  if (is_common(type) || is_named(type)) return true;
  char byte = 0;
  int position = 0;
  return PMPI_Pack(&byte, 0, type, &byte, 1, &position, quiet_comm()) == MPI_SUCCESS;
}

bool begins_at_its_address(MPI_Datatype type) {
  if (is_common(type)) return true;
  MPI_Aint low = 0;
  MPI_Aint extent = 0;
  PMPI_Type_get_true_extent(type, &low, &extent);
  return low == 0;
}

}  // namespace

QuietComm::QuietComm() {
  PMPI_Comm_dup(MPI_COMM_SELF, &quiet);
  PMPI_Comm_set_errhandler(quiet, MPI_ERRORS_RETURN);
  // Tests whether the library refuses equal send and receive buffers. Open MPI reports that error
  // to the error handler of MPI_COMM_WORLD, so that handler is replaced meanwhile. Open MPI reports
  // no error for a single element, so the test reduces two elements.
  MPI_Errhandler worlds = MPI_ERRHANDLER_NULL;
  PMPI_Comm_get_errhandler(MPI_COMM_WORLD, &worlds);
  PMPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  std::array<int, 2> values = {};
  refuses_aliases = PMPI_Allreduce(values.data(), values.data(), 2, MPI_INT, MPI_SUM, quiet) != 0;
  PMPI_Comm_set_errhandler(MPI_COMM_WORLD, worlds);
  PMPI_Errhandler_free(&worlds);
}

QuietComm::~QuietComm() { PMPI_Comm_free(&quiet); }

MPI_Comm quiet_comm() { return quiet == MPI_COMM_NULL ? MPI_COMM_SELF : quiet; }

bool has_rank(MPI_Comm comm, int rank) {
  int size = 0;
  if (comm != MPI_COMM_NULL) PMPI_Comm_size(comm, &size);
  return rank >= 0 && rank < size;
}

bool is_own_rank(MPI_Comm comm, int rank) {
  int own = -1;
  if (comm != MPI_COMM_NULL) PMPI_Comm_rank(comm, &own);
  return own == rank;
}

bool is_refused_place(const void* data, int64_t count, MPI_Datatype type) {
  if (data != nullptr) return data == MPI_IN_PLACE;
  return count > 0 && size_of_type(type) > 0 && begins_at_its_address(type);
}

bool is_refused(const void* data, int64_t count, MPI_Datatype type) {
  return count < 0 || type == MPI_DATATYPE_NULL || !is_committed(type) ||
         is_refused_place(data, count, type);
}

bool are_refused_aliases(const void* in, const void* out, int64_t count) {
  return refuses_aliases && in == out && in != nullptr && count > 0;
}

}  // namespace tutti::mpi
