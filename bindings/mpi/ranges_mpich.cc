#include "bindings/mpi/ranges.h"

namespace tutti::mpi {

// Measured with MPICH 4.0, two ranks on one host (README.md).
namespace {

const Ranges kBlocking = {{
    kAlways,      // allreduce
    kAlways,      // reduce
    kNever,       // bcast
    up_to(1024),  // allgather
    kNever,       // allgatherv
    kNever,       // gather
    kNever,       // gatherv
    kNever,       // scatter
    kNever,       // scatterv
    up_to(1024),  // alltoall
    kNever,       // alltoallv
    from(8192),   // reduce_scatter
    kAlways,      // reduce_scatter_block
    kAlways,      // scan
    kAlways,      // exscan
    kAlways,      // barrier
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
