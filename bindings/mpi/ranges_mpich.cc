#include "bindings/mpi/ranges.h"

namespace tutti::mpi {

namespace {

// Ranges for blocking calls, measured with MPICH 4.0, two ranks on one host (README.md).
const Ranges kBlocking = {{
    kAlways,       // allreduce
    kAlways,       // reduce
    from(32768),   // bcast
    up_to(32768),  // allgather
    from(32768),   // allgatherv
    from(32768),   // gather
    kNever,        // gatherv
    from(32768),   // scatter
    kNever,        // scatterv
    up_to(32768),  // alltoall
    kNever,        // alltoallv
    from(8192),    // reduce_scatter
    kAlways,       // reduce_scatter_block
    kAlways,       // scan
    kAlways,       // exscan
    kAlways,       // barrier
    kAlways,       // win_create
    kAlways,       // win_allocate
}};

const Ranges kStarting = {{
    kAlways,             // allreduce
    kAlways,             // reduce
    from(32768),         // bcast
    from(32768),         // allgather
    from(32768),         // allgatherv
    from(32768),         // gather
    kNever,              // gatherv
    from(32768),         // scatter
    kNever,              // scatterv
    Range{8192, 32768},  // alltoall
    kNever,              // alltoallv
    from(8192),          // reduce_scatter
    kAlways,             // reduce_scatter_block
    kAlways,             // scan
    kAlways,             // exscan
    kNever,              // barrier
    kNever,              // win_create
    kNever,              // win_allocate
}};

const Ranges kPersistent = {};  // unused

}  // namespace

const RangesOfForms kMeasured = {{kBlocking, kStarting, kPersistent}};

const Range kMeasuredFunctions = kAlways;

const Range kMeasuredPrograms = from(32768);

}  // namespace tutti::mpi
