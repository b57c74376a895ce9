// Tutti beside an MPI library in one process: from MPI_Init to MPI_Finalize.
//
// The ranks of MPI_COMM_WORLD join a job of Tutti's in MPI_Init, by means of the MPI library
// itself: rank 0's address and a fresh token go out by MPI_Bcast. Other communicators are made of
// that one when they are first used, by their members only; until then they cost nothing. What
// belongs to a communicator hangs on it as an attribute, and goes when MPI frees it.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <exception>

#include "bindings/mpi/ranges.h"
#include "bindings/mpi/report.h"
#include "collectives/communicator.h"

namespace tutti::mpi {

// A communicator of MPI's, as Tutti has it.
struct Channel {
  Communicator communicator;  // empty where Tutti cannot serve it: on all of its ranks alike
  int rank = 0;
  int size = 1;
};

// After PMPI_Init. Collective. Where one rank cannot join, none does, and all calls fall through.
void begin();
// Before PMPI_Finalize: shows the report, and leaves.
void end();

// What a call may decide by: only what MPI makes equal on all its ranks. Else one of them would
// wait in Tutti for others that wait in MPI.
struct Decision {
  Fate fate = Fate::through;
  uint64_t bytes = kUnknown;
};

// Counts the call. Null: it falls through.
Channel* choose(Call call, MPI_Comm comm, const Decision& decision);

// Says it on standard error, and calls the communicator's error handler, as MPI's own errors do.
int fail(MPI_Comm comm, Call call, const std::exception& error);

// One call: by `ours` where Tutti takes it, by `theirs` otherwise.
template <typename Theirs, typename Ours>
int route(Call call, MPI_Comm comm, const Decision& decision, Theirs theirs, Ours ours) {
  Channel* channel = choose(call, comm, decision);
  if (channel == nullptr) return theirs();
  try {
    ours(*channel);
    return MPI_SUCCESS;
  } catch (const std::exception& error) {
    return fail(comm, call, error);
  }
}

}  // namespace tutti::mpi
