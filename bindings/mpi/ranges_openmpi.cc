#include "bindings/mpi/ranges.h"

namespace tutti::mpi {

// Measured with Open MPI 4.1, two ranks on one host (README.md).
namespace {

const Ranges kBlocking = {{
    kAlways,            // allreduce
    Range{1024, 8192},  // reduce
    Range{1024, 8192},  // bcast
    up_to(4096),        // allgather
    kNever,             // allgatherv
    Range{1024, 8192},  // gather
    kNever,             // gatherv
    Range{1024, 8192},  // scatter
    kNever,             // scatterv
    up_to(8192),        // alltoall
    kNever,             // alltoallv
    from(8192),         // reduce_scatter
    kAlways,            // reduce_scatter_block
    from(1024),         // scan
    from(1024),         // exscan
    kAlways,            // barrier
}};

const Ranges kStarting = {{
    kAlways,
    kAlways,
    kAlways,
    kAlways,
    kAlways,
    kAlways,
    kAlways,
    kAlways,
    kAlways,
    kAlways,
    kAlways,
    kAlways,
    kAlways,
    kAlways,
    kAlways,
    kAlways,
}};

const Ranges kPersistent = {};

}  // namespace

const RangesOfForms kMeasured = {{kBlocking, kStarting, kPersistent}};

const Range kMeasuredFunctions = kAlways;

}  // namespace tutti::mpi
