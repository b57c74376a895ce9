#include "bindings/mpi/ranges.h"

namespace tutti::mpi {

namespace {

// Not measured: those of MPICH 4.0, of which the library that has this ABI is a later version.
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
}};

const Ranges kPersistent = {};  // none is asked for

}  // namespace

const RangesOfForms kMeasured = {{kBlocking, kStarting, kPersistent}};

const Range kMeasuredFunctions = kAlways;

const Range kMeasuredPrograms = from(32768);

}  // namespace tutti::mpi
