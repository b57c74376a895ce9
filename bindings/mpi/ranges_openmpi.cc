#include "bindings/mpi/ranges.h"

namespace tutti::mpi {

namespace {

// Ranges for blocking calls, measured with Open MPI 4.1, two ranks on one host (README.md).
const Ranges kBlocking = {{
    kAlways,             // allreduce
    Range{1024, 8192},   // reduce
    Range{1024, 32768},  // bcast
    Range{1024, 32768},  // allgather
    kNever,              // allgatherv
    Range{1024, 32768},  // gather
    kNever,              // gatherv
    Range{1024, 32768},  // scatter
    kNever,              // scatterv
    Range{1024, 32768},  // alltoall
    kNever,              // alltoallv
    from(8192),          // reduce_scatter
    from(1024),          // reduce_scatter_block
    from(1024),          // scan
    from(1024),          // exscan
    kAlways,             // barrier
    kNever,              // win_create
    kNever,              // win_allocate
}};

const Ranges kStarting = {{
    from(1024),          // allreduce
    Range{1024, 8192},   // reduce
    Range{8192, 32768},  // bcast
    from(8192),          // allgather
    from(8192),          // allgatherv
    from(8192),          // gather
    kNever,              // gatherv
    from(8192),          // scatter
    kNever,              // scatterv
    Range{8192, 32768},  // alltoall
    kNever,              // alltoallv
    from(8192),          // reduce_scatter
    from(1024),          // reduce_scatter_block
    from(8192),          // scan
    from(8192),          // exscan
    kNever,              // barrier
    kNever,              // win_create
    kNever,              // win_allocate
}};

const Ranges kPersistent = {};  // unused

}  // namespace

const RangesOfForms kMeasured = {{kBlocking, kStarting, kPersistent}};

const Range kMeasuredFunctions = from(1024);

const Range kMeasuredPrograms = from(1024);

}  // namespace tutti::mpi
