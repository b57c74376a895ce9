// What Tutti does for each call of MPI's, whatever integers its counts come in. The last argument
// is the MPI library's own function with the caller's arguments, for what falls through.
//
// Movements of data are decided by bytes, of which MPI says that all ranks name the same number;
// where a rank knows its own only (the v-calls with roots, alltoallv), by nothing.
#pragma once

#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <optional>
#include <vector>

#include "bindings/mpi/session.h"
#include "bindings/mpi/values.h"

namespace tutti::mpi {

inline Decision of_bytes(int64_t count, MPI_Datatype type) {
  if (count < 0 || type == MPI_DATATYPE_NULL) return {.fate = Fate::argument};
  return {.bytes = static_cast<uint64_t>(count) * size_of_type(type)};
}

// Of a buffer of which a rank may know nothing: the root's, in place.
inline Decision of_either(bool first, int64_t count, MPI_Datatype type, int64_t other_count,
                          MPI_Datatype other_type) {
  return first ? of_bytes(count, type) : of_bytes(other_count, other_type);
}

// As many as a v-call has counts; none between two groups, which are not for Tutti.
inline int blocks_of(MPI_Comm comm) {
  int is_inter = 0;
  PMPI_Comm_test_inter(comm, &is_inter);
  int size = 0;
  if (is_inter == 0) PMPI_Comm_size(comm, &size);
  return size;
}

struct ReductionOf {
  std::optional<Reducible> kind;
  Decision decision;

  ReductionOf(int64_t count, MPI_Datatype type, MPI_Op op) {
    if (type != MPI_DATATYPE_NULL && op != MPI_OP_NULL) kind = reducible(type, op);
    if (!kind) {
      decision.fate = Fate::type_or_op;
    } else if (count < 0) {
      decision.fate = Fate::argument;
    } else {
      decision.bytes = static_cast<uint64_t>(count) * size_of(kind->dtype);
    }
  }
  ConstBuffer input(const void* data, int64_t count) const {
    return {data, static_cast<uint64_t>(count), kind->dtype};
  }
  Buffer output(void* data, int64_t count) const {
    return {data, static_cast<uint64_t>(count), kind->dtype};
  }
};

// MPI_IN_PLACE: what is to be read lies where the result goes.
inline const void* input_of(const void* in, const void* out) {
  return in == MPI_IN_PLACE ? out : in;
}

template <typename Theirs>
int all_reduce(const void* in, void* out, int64_t count, MPI_Datatype type, MPI_Op op,
               MPI_Comm comm, Theirs theirs) {
  const ReductionOf reduction(count, type, op);
  return route(Call::allreduce, comm, reduction.decision, theirs, [&](Channel& channel) {
    channel.communicator.all_reduce(reduction.input(input_of(in, out), count),
                                    reduction.output(out, count), reduction.kind->op);
  });
}

template <typename Theirs>
int reduce(const void* in, void* out, int64_t count, MPI_Datatype type, MPI_Op op, int root,
           MPI_Comm comm, Theirs theirs) {
  const ReductionOf reduction(count, type, op);
  return route(Call::reduce, comm, reduction.decision, theirs, [&](Channel& channel) {
    channel.communicator.reduce(reduction.input(input_of(in, out), count),
                                reduction.output(out, count), reduction.kind->op, root);
  });
}

template <typename Theirs>
int scan(const void* in, void* out, int64_t count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
         Theirs theirs) {
  const ReductionOf reduction(count, type, op);
  return route(Call::scan, comm, reduction.decision, theirs, [&](Channel& channel) {
    channel.communicator.scan(reduction.input(input_of(in, out), count),
                              reduction.output(out, count), reduction.kind->op);
  });
}

template <typename Theirs>
int exscan(const void* in, void* out, int64_t count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
           Theirs theirs) {
  const ReductionOf reduction(count, type, op);
  return route(Call::exscan, comm, reduction.decision, theirs, [&](Channel& channel) {
    channel.communicator.exscan(reduction.input(input_of(in, out), count),
                                reduction.output(out, count), reduction.kind->op);
  });
}

// In place the input is the whole output buffer, whose start gets the result: Tutti puts a rank's
// result where its block is, so that goes aside.
template <typename Theirs>
int reduce_scatter_block(const void* in, void* out, int64_t count, MPI_Datatype type, MPI_Op op,
                         MPI_Comm comm, Theirs theirs) {
  const ReductionOf reduction(count, type, op);
  return route(Call::reduce_scatter_block, comm, reduction.decision, theirs, [&](Channel& channel) {
    const uint64_t bytes = reduction.decision.bytes;
    std::vector<std::byte> aside(in == MPI_IN_PLACE ? bytes : 0);
    void* result = in == MPI_IN_PLACE ? aside.data() : out;
    channel.communicator.reduce_scatter(reduction.input(input_of(in, out), count * channel.size),
                                        reduction.output(result, count), reduction.kind->op);
    if (!aside.empty()) std::memcpy(out, aside.data(), bytes);
  });
}

template <typename Count, typename Theirs>
int reduce_scatter(const void* in, void* out, const Count* counts, MPI_Datatype type, MPI_Op op,
                   MPI_Comm comm, Theirs theirs) {
  const int size = blocks_of(comm);
  const int64_t total = std::accumulate(counts, counts + size, int64_t{0});
  ReductionOf reduction(total, type, op);
  reduction.decision.bytes /= std::max(size, 1);
  return route(Call::reduce_scatter, comm, reduction.decision, theirs, [&](Channel& channel) {
    const Blocks blocks{.counts = {counts, counts + size}, .displacements = {}};
    const int64_t own = counts[channel.rank];
    const uint64_t bytes = static_cast<uint64_t>(own) * size_of(reduction.kind->dtype);
    std::vector<std::byte> aside(in == MPI_IN_PLACE ? bytes : 0);
    void* result = in == MPI_IN_PLACE ? aside.data() : out;
    channel.communicator.reduce_scatterv(reduction.input(input_of(in, out), total),
                                         reduction.output(result, own), blocks, reduction.kind->op);
    if (!aside.empty()) std::memcpy(out, aside.data(), bytes);
  });
}

template <typename Theirs>
int broadcast(void* data, int64_t count, MPI_Datatype type, int root, MPI_Comm comm,
              Theirs theirs) {
  return route(Call::bcast, comm, of_bytes(count, type), theirs, [&](Channel& channel) {
    Run run(data, static_cast<uint64_t>(count), type);
    if (channel.rank == root) run.pack();
    channel.communicator.broadcast(run.input(), run.output(), root);
    if (channel.rank != root) run.unpack();
  });
}

// What a rank itself gives or gets: a buffer of its own, or in place its block of the others'.
inline Run own_run(const void* own, int64_t own_count, MPI_Datatype own_type, const void* blocks,
                   int rank, int64_t count, MPI_Datatype type) {
  return own == MPI_IN_PLACE ? block_run(blocks, rank, count, type)
                             : Run(own, static_cast<uint64_t>(own_count), own_type);
}

// Where it is not in place, counts and displacements need not be there.
template <typename Count, typename Displacement>
Run own_run(const void* own, int64_t own_count, MPI_Datatype own_type, const void* blocks, int rank,
            const Count* counts, const Displacement* displacements, MPI_Datatype type) {
  return own == MPI_IN_PLACE ? element_run(blocks, displacements[rank], counts[rank], type)
                             : Run(own, static_cast<uint64_t>(own_count), own_type);
}

template <typename Theirs>
int all_gather(const void* in, int64_t in_count, MPI_Datatype in_type, void* out, int64_t count,
               MPI_Datatype type, MPI_Comm comm, Theirs theirs) {
  return route(Call::allgather, comm, of_bytes(count, type), theirs, [&](Channel& channel) {
    Run result(out, static_cast<uint64_t>(count * channel.size), type);
    Run own = own_run(in, in_count, in_type, out, channel.rank, count, type);
    own.pack();
    channel.communicator.all_gather(own.input(), result.output());
    result.unpack();
  });
}

template <typename Count, typename Displacement, typename Theirs>
int all_gatherv(const void* in, int64_t in_count, MPI_Datatype in_type, void* out,
                const Count* counts, const Displacement* displacements, MPI_Datatype type,
                MPI_Comm comm, Theirs theirs) {
  const int size = blocks_of(comm);
  const int64_t total = std::accumulate(counts, counts + size, int64_t{0});
  Decision decision = of_bytes(total, type);
  decision.bytes /= std::max(size, 1);
  return route(Call::allgatherv, comm, decision, theirs, [&](Channel& channel) {
    BlockRun result(out, counts, displacements, size, type);
    Run own = own_run(in, in_count, in_type, out, channel.rank, counts, displacements, type);
    own.pack();
    channel.communicator.all_gatherv(own.input(), result.output(), result.blocks());
    result.unpack();
  });
}

template <typename Theirs>
int gather(const void* in, int64_t in_count, MPI_Datatype in_type, void* out, int64_t count,
           MPI_Datatype type, int root, MPI_Comm comm, Theirs theirs) {
  const Decision decision = of_either(in == MPI_IN_PLACE, count, type, in_count, in_type);
  return route(Call::gather, comm, decision, theirs, [&](Channel& channel) {
    Run result;
    if (channel.rank == root) result = Run(out, static_cast<uint64_t>(count * channel.size), type);
    Run own = own_run(in, in_count, in_type, out, channel.rank, count, type);
    own.pack();
    channel.communicator.gather(own.input(), result.output(), root);
    result.unpack();
  });
}

template <typename Count, typename Displacement, typename Theirs>
int gatherv(const void* in, int64_t in_count, MPI_Datatype in_type, void* out, const Count* counts,
            const Displacement* displacements, MPI_Datatype type, int root, MPI_Comm comm,
            Theirs theirs) {
  return route(Call::gatherv, comm, {}, theirs, [&](Channel& channel) {
    BlockRun result;
    if (channel.rank == root) result = BlockRun(out, counts, displacements, channel.size, type);
    Run own = own_run(in, in_count, in_type, out, channel.rank, counts, displacements, type);
    own.pack();
    channel.communicator.gatherv(own.input(), result.output(), result.blocks(), root);
    result.unpack();
  });
}

// In place the root's own block stays where it is, and Tutti is given that place.
template <typename Theirs>
int scatter(const void* in, int64_t count, MPI_Datatype type, void* out, int64_t out_count,
            MPI_Datatype out_type, int root, MPI_Comm comm, Theirs theirs) {
  const Decision decision = of_either(out == MPI_IN_PLACE, count, type, out_count, out_type);
  return route(Call::scatter, comm, decision, theirs, [&](Channel& channel) {
    Run given;
    if (channel.rank == root) given = Run(in, static_cast<uint64_t>(count * channel.size), type);
    Run own = own_run(out, out_count, out_type, in, channel.rank, count, type);
    given.pack();
    channel.communicator.scatter(given.input(), own.output(), root);
    if (out != MPI_IN_PLACE) own.unpack();
  });
}

template <typename Count, typename Displacement, typename Theirs>
int scatterv(const void* in, const Count* counts, const Displacement* displacements,
             MPI_Datatype type, void* out, int64_t out_count, MPI_Datatype out_type, int root,
             MPI_Comm comm, Theirs theirs) {
  return route(Call::scatterv, comm, {}, theirs, [&](Channel& channel) {
    BlockRun given;
    if (channel.rank == root) given = BlockRun(in, counts, displacements, channel.size, type);
    Run own = own_run(out, out_count, out_type, in, channel.rank, counts, displacements, type);
    given.pack();
    channel.communicator.scatterv(given.input(), given.blocks(), own.output(), root);
    if (out != MPI_IN_PLACE) own.unpack();
  });
}

template <typename Theirs>
int all_to_all(const void* in, int64_t in_count, MPI_Datatype in_type, void* out, int64_t count,
               MPI_Datatype type, MPI_Comm comm, Theirs theirs) {
  return route(Call::alltoall, comm, of_bytes(count, type), theirs, [&](Channel& channel) {
    Run result(out, static_cast<uint64_t>(count * channel.size), type);
    if (in == MPI_IN_PLACE) {
      result.pack();
      channel.communicator.all_to_all(result.input(), result.output());
    } else {
      Run given(in, static_cast<uint64_t>(in_count * channel.size), in_type);
      given.pack();
      channel.communicator.all_to_all(given.input(), result.output());
    }
    result.unpack();
  });
}

template <typename Count, typename Displacement, typename Theirs>
int all_to_allv(const void* in, const Count* in_counts, const Displacement* in_displacements,
                MPI_Datatype in_type, void* out, const Count* counts,
                const Displacement* displacements, MPI_Datatype type, MPI_Comm comm,
                Theirs theirs) {
  return route(Call::alltoallv, comm, {}, theirs, [&](Channel& channel) {
    BlockRun result(out, counts, displacements, channel.size, type);
    if (in == MPI_IN_PLACE) {
      result.pack();
      channel.communicator.all_to_allv(result.input(), result.blocks(), result.output(),
                                       result.blocks());
    } else {
      BlockRun given(in, in_counts, in_displacements, channel.size, in_type);
      given.pack();
      channel.communicator.all_to_allv(given.input(), given.blocks(), result.output(),
                                       result.blocks());
    }
    result.unpack();
  });
}

template <typename Theirs>
int barrier(MPI_Comm comm, Theirs theirs) {
  return route(Call::barrier, comm, {.bytes = 0}, theirs,
               [](Channel& channel) { channel.communicator.barrier(); });
}

}  // namespace tutti::mpi
