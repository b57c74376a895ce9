// Tutti's implementation of each MPI call, for counts of any integer type. The first argument,
// Blocking or Starting (session.h), selects the form of the call. The last, `theirs`, calls the MPI
// library's own function with the caller's arguments, for calls that fall through.
//
// For data movements the decision depends on the number of bytes, which MPI requires to be equal on
// all ranks. If each rank knows only its own number of bytes (v-calls with roots, alltoallv), the
// decision does not depend on that number.
#pragma once

#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "bindings/mpi/arguments.h"
#include "bindings/mpi/operators.h"
#include "bindings/mpi/session.h"
#include "bindings/mpi/values.h"

namespace tutti::mpi {

inline Decision of_bytes(int64_t count, MPI_Datatype type) {
  if (count < 0 || type == MPI_DATATYPE_NULL) return {.outcome = Outcome::argument};
  return {.bytes = static_cast<uint64_t>(count) * size_of_type(type)};
}

// Decides by the size of the buffer that is significant on this rank: the first one if `first`,
// otherwise the other one.
inline Decision of_either(bool first, int64_t count, MPI_Datatype type, int64_t other_count,
                          MPI_Datatype other_type) {
  return first ? of_bytes(count, type) : of_bytes(other_count, other_type);
}

// Returns the number of counts of a v-call; 0 for an intercommunicator, which Tutti does not serve.
inline int blocks_of(MPI_Comm comm) {
  if (comm == MPI_COMM_NULL) return 0;
  int is_inter = 0;
  PMPI_Comm_test_inter(comm, &is_inter);
  int size = 0;
  if (is_inter == 0) PMPI_Comm_size(comm, &size);
  return size;
}

// ---- reductions

// A reduction on the program's own buffers.
struct PlainTask {
  Request request;
  void keep() {}
  void finish() {}
};

// A reduction into a temporary buffer, which is copied to the program's buffer on completion.
struct TaskWithTemporary {
  std::vector<std::byte> aside;
  void* out = nullptr;
  Request request;
  void keep() {}
  void finish() {
    if (!aside.empty()) std::memcpy(out, aside.data(), aside.size());
  }
};

struct ReductionOf {
  const Reducible* kind;
  Decision decision;

  // Prepares a reduction. `in` and `out`: this rank's buffers that the call reads and writes.
  ReductionOf(const void* in, const void* out, int64_t count, MPI_Datatype type, MPI_Op op)
      : kind(reducible(type, op)) {
    if (kind == nullptr) {
      decision.outcome = Outcome::type_or_op;
    } else if (count < 0) {
      decision.outcome = Outcome::argument;
    } else {
      decision.bytes = static_cast<uint64_t>(count) * kind->element_bytes();
      decision.by_function = kind->op.op == ReduceOp::user;
      decision.runs_program = kind->is_programs;
      decision.refuse_if(is_refused_place(in, count, type) || is_refused_place(out, count, type));
      decision.refuse_if(kind->is_programs && is_refused(in, count, type));
    }
  }
  ConstBuffer input(const void* data, int64_t count) const {
    return {data, static_cast<uint64_t>(count) * kind->op.width(), kind->dtype};
  }
  Buffer output(void* data, int64_t count) const {
    return {data, static_cast<uint64_t>(count) * kind->op.width(), kind->dtype};
  }
};

// Returns the address of the input, which is the output buffer for MPI_IN_PLACE.
inline const void* input_of(const void* in, const void* out) {
  return in == MPI_IN_PLACE ? out : in;
}

template <typename How, typename Theirs>
int all_reduce(How how, const void* in, void* out, int64_t count, MPI_Datatype type, MPI_Op op,
               MPI_Comm comm, Theirs theirs) {
  ReductionOf reduction(input_of(in, out), out, count, type, op);
  reduction.decision.refuse_if(are_refused_aliases(in, out, count));
  return route(how, Call::allreduce, comm, reduction.decision, theirs, [&](Channel&) {
    return PlainTask{Request::all_reduce(reduction.input(input_of(in, out), count),
                                         reduction.output(out, count), reduction.kind->op)};
  });
}

template <typename How, typename Theirs>
int reduce(How how, const void* in, void* out, int64_t count, MPI_Datatype type, MPI_Op op,
           int root, MPI_Comm comm, Theirs theirs) {
  const bool is_root = is_own_rank(comm, root);
  ReductionOf reduction(input_of(in, out), is_root ? out : in, count, type, op);
  reduction.decision.refuse_if(!has_rank(comm, root) || (in == MPI_IN_PLACE && !is_root) ||
                               (is_root && are_refused_aliases(in, out, count)));
  return route(how, Call::reduce, comm, reduction.decision, theirs, [&](Channel&) {
    return PlainTask{Request::reduce(reduction.input(input_of(in, out), count),
                                     reduction.output(out, count), reduction.kind->op, root)};
  });
}

template <typename How, typename Theirs>
int scan(How how, const void* in, void* out, int64_t count, MPI_Datatype type, MPI_Op op,
         MPI_Comm comm, Theirs theirs) {
  ReductionOf reduction(input_of(in, out), out, count, type, op);
  reduction.decision.refuse_if(are_refused_aliases(in, out, count));
  return route(how, Call::scan, comm, reduction.decision, theirs, [&](Channel&) {
    return PlainTask{Request::scan(reduction.input(input_of(in, out), count),
                                   reduction.output(out, count), reduction.kind->op)};
  });
}

template <typename How, typename Theirs>
int exscan(How how, const void* in, void* out, int64_t count, MPI_Datatype type, MPI_Op op,
           MPI_Comm comm, Theirs theirs) {
  ReductionOf reduction(input_of(in, out), out, count, type, op);
  reduction.decision.refuse_if(are_refused_aliases(in, out, count));
  return route(how, Call::exscan, comm, reduction.decision, theirs, [&](Channel&) {
    return PlainTask{Request::exscan(reduction.input(input_of(in, out), count),
                                     reduction.output(out, count), reduction.kind->op)};
  });
}

// Returns a task with a temporary buffer, for reduce_scatter in place. MPI's input is then the
// whole output buffer, and the result goes to its start; Tutti would put it at the rank's block.
inline TaskWithTemporary task_aside(const void* in, void* out, uint64_t bytes) {
  return {.aside = std::vector<std::byte>(in == MPI_IN_PLACE ? bytes : 0), .out = out};
}

template <typename How, typename Theirs>
int reduce_scatter_block(How how, const void* in, void* out, int64_t count, MPI_Datatype type,
                         MPI_Op op, MPI_Comm comm, Theirs theirs) {
  ReductionOf reduction(input_of(in, out), out, count, type, op);
  reduction.decision.refuse_if(are_refused_aliases(in, out, count));
  return route(
      how, Call::reduce_scatter_block, comm, reduction.decision, theirs, [&](Channel& channel) {
        TaskWithTemporary task = task_aside(in, out, reduction.decision.bytes);
        void* const result = in == MPI_IN_PLACE ? task.aside.data() : out;
        task.request =
            Request::reduce_scatter(reduction.input(input_of(in, out), count * channel.size),
                                    reduction.output(result, count), reduction.kind->op);
        return task;
      });
}

template <typename Count>
int64_t own_count(MPI_Comm comm, const Count* counts) {
  int rank = 0;
  PMPI_Comm_rank(comm, &rank);
  return counts[rank];
}

template <typename How, typename Count, typename Theirs>
int reduce_scatter(How how, const void* in, void* out, const Count* counts, MPI_Datatype type,
                   MPI_Op op, MPI_Comm comm, Theirs theirs) {
  const int size = blocks_of(comm);
  const int64_t total = std::accumulate(counts, counts + size, int64_t{0});
  // A rank without a result may pass no output buffer.
  const void* const read = input_of(in, out);
  ReductionOf reduction(read, size > 0 && own_count(comm, counts) == 0 ? read : out, total, type,
                        op);
  reduction.decision.refuse_if(std::any_of(counts, counts + size, [](Count c) { return c < 0; }) ||
                               are_refused_aliases(in, out, total));
  reduction.decision.bytes /= std::max(size, 1);
  return route(how, Call::reduce_scatter, comm, reduction.decision, theirs, [&](Channel& channel) {
    Blocks blocks{.counts = {counts, counts + size}, .displacements = {}};
    for (uint64_t& block : blocks.counts) block *= reduction.kind->op.width();
    const int64_t own = counts[channel.rank];
    TaskWithTemporary task =
        task_aside(in, out, static_cast<uint64_t>(own) * reduction.kind->element_bytes());
    void* const result = in == MPI_IN_PLACE ? task.aside.data() : out;
    task.request = Request::reduce_scatterv(reduction.input(input_of(in, out), total),
                                            reduction.output(result, own), std::move(blocks),
                                            reduction.kind->op);
    return task;
  });
}

// ---- data movements

// Moves data between runs of elements, which may have to be packed.
template <typename From, typename To>
struct Movement {
  From from;
  To to;
  bool stores = true;
  Request request;
  void keep() {
    from.keep();
    to.keep();
  }
  void finish() {
    if (stores) to.unpack();
  }
};

template <typename How, typename Theirs>
int broadcast(How how, void* data, int64_t count, MPI_Datatype type, int root, MPI_Comm comm,
              Theirs theirs) {
  const Decision decision =
      of_bytes(count, type).refuse_if(!has_rank(comm, root) || is_refused(data, count, type));
  return route(how, Call::bcast, comm, decision, theirs, [&](Channel& channel) {
    Movement<Run, Run> task{.to = Run(data, static_cast<uint64_t>(count), type)};
    if (channel.rank == root) task.to.pack();
    task.stores = channel.rank != root;
    task.request = Request::broadcast(task.to.input(), task.to.output(), root);
    return task;
  });
}

// Returns this rank's own contribution or result: a separate buffer or, in place, its block of
// `blocks`.
inline Run own_run(const void* own, int64_t own_count, MPI_Datatype own_type, const void* blocks,
                   int rank, int64_t count, MPI_Datatype type) {
  return own == MPI_IN_PLACE ? block_run(blocks, rank, count, type)
                             : Run(own, static_cast<uint64_t>(own_count), own_type);
}

// Returns this rank's own contribution or result in a v-call. `counts` and `displacements` belong
// to `blocks`, and are used only if the call is in place.
template <typename Count, typename Displacement>
Run own_run(const void* own, int64_t own_count, MPI_Datatype own_type, const void* blocks, int rank,
            const Count* counts, const Displacement* displacements, MPI_Datatype type) {
  return own == MPI_IN_PLACE ? element_run(blocks, displacements[rank], counts[rank], type)
                             : Run(own, static_cast<uint64_t>(own_count), own_type);
}

template <typename How, typename Theirs>
int all_gather(How how, const void* in, int64_t in_count, MPI_Datatype in_type, void* out,
               int64_t count, MPI_Datatype type, MPI_Comm comm, Theirs theirs) {
  const Decision decision = of_bytes(count, type)
                                .refuse_if(is_refused_unless_in_place(in, in_count, in_type) ||
                                           is_refused(out, count, type));
  return route(how, Call::allgather, comm, decision, theirs, [&](Channel& channel) {
    Movement<Run, Run> task{.from = own_run(in, in_count, in_type, out, channel.rank, count, type),
                            .to = Run(out, static_cast<uint64_t>(count * channel.size), type)};
    task.from.pack();
    task.request = Request::all_gather(task.from.input(), task.to.output());
    return task;
  });
}

template <typename How, typename Count, typename Displacement, typename Theirs>
int all_gatherv(How how, const void* in, int64_t in_count, MPI_Datatype in_type, void* out,
                const Count* counts, const Displacement* displacements, MPI_Datatype type,
                MPI_Comm comm, Theirs theirs) {
  const int size = blocks_of(comm);
  const int64_t total = std::accumulate(counts, counts + size, int64_t{0});
  Decision decision = of_bytes(total, type);
  decision.refuse_if(is_refused_unless_in_place(in, in_count, in_type) ||
                     is_refused(out, counts, size, type));
  decision.bytes /= std::max(size, 1);
  return route(how, Call::allgatherv, comm, decision, theirs, [&](Channel& channel) {
    Movement<Run, BlockRun> task{
        .from = own_run(in, in_count, in_type, out, channel.rank, counts, displacements, type),
        .to = BlockRun(out, counts, displacements, size, type)};
    task.from.pack();
    task.request = Request::all_gatherv(task.from.input(), task.to.output(), task.to.blocks());
    return task;
  });
}

template <typename How, typename Theirs>
int gather(How how, const void* in, int64_t in_count, MPI_Datatype in_type, void* out,
           int64_t count, MPI_Datatype type, int root, MPI_Comm comm, Theirs theirs) {
  const bool is_root = is_own_rank(comm, root);
  Decision decision = of_either(in == MPI_IN_PLACE, count, type, in_count, in_type);
  decision.refuse_if(!has_rank(comm, root) || is_refused_own(is_root, in, in_count, in_type));
  decision.refuse_if(is_root && is_refused(out, count, type));
  return route(how, Call::gather, comm, decision, theirs, [&](Channel& channel) {
    Movement<Run, Run> task{.from = own_run(in, in_count, in_type, out, channel.rank, count, type)};
    if (channel.rank == root) {
      task.to = Run(out, static_cast<uint64_t>(count * channel.size), type);
    }
    task.from.pack();
    task.request = Request::gather(task.from.input(), task.to.output(), root);
    return task;
  });
}

template <typename How, typename Count, typename Displacement, typename Theirs>
int gatherv(How how, const void* in, int64_t in_count, MPI_Datatype in_type, void* out,
            const Count* counts, const Displacement* displacements, MPI_Datatype type, int root,
            MPI_Comm comm, Theirs theirs) {
  const bool is_root = is_own_rank(comm, root);
  Decision decision;
  decision.refuse_if(!has_rank(comm, root) || is_refused_own(is_root, in, in_count, in_type));
  decision.refuse_if(is_root && is_refused(out, counts, blocks_of(comm), type));
  return route(how, Call::gatherv, comm, decision, theirs, [&](Channel& channel) {
    Movement<Run, BlockRun> task{
        .from = own_run(in, in_count, in_type, out, channel.rank, counts, displacements, type)};
    if (channel.rank == root) {
      task.to = BlockRun(out, counts, displacements, channel.size, type);
    }
    task.from.pack();
    task.request = Request::gatherv(task.from.input(), task.to.output(), task.to.blocks(), root);
    return task;
  });
}

// Executes a scatter. In place the root's own block is not moved, and Tutti receives its address.
template <typename How, typename Theirs>
int scatter(How how, const void* in, int64_t count, MPI_Datatype type, void* out, int64_t out_count,
            MPI_Datatype out_type, int root, MPI_Comm comm, Theirs theirs) {
  const bool is_root = is_own_rank(comm, root);
  Decision decision = of_either(out == MPI_IN_PLACE, count, type, out_count, out_type);
  decision.refuse_if(!has_rank(comm, root) || is_refused_own(is_root, out, out_count, out_type));
  decision.refuse_if(is_root && is_refused(in, count, type));
  return route(how, Call::scatter, comm, decision, theirs, [&](Channel& channel) {
    Movement<Run, Run> task{.to = own_run(out, out_count, out_type, in, channel.rank, count, type),
                            .stores = out != MPI_IN_PLACE};
    if (channel.rank == root) {
      task.from = Run(in, static_cast<uint64_t>(count * channel.size), type);
    }
    task.from.pack();
    task.request = Request::scatter(task.from.input(), task.to.output(), root);
    return task;
  });
}

template <typename How, typename Count, typename Displacement, typename Theirs>
int scatterv(How how, const void* in, const Count* counts, const Displacement* displacements,
             MPI_Datatype type, void* out, int64_t out_count, MPI_Datatype out_type, int root,
             MPI_Comm comm, Theirs theirs) {
  const bool is_root = is_own_rank(comm, root);
  Decision decision;
  decision.refuse_if(!has_rank(comm, root) || is_refused_own(is_root, out, out_count, out_type));
  decision.refuse_if(is_root && is_refused(in, counts, blocks_of(comm), type));
  return route(how, Call::scatterv, comm, decision, theirs, [&](Channel& channel) {
    Movement<BlockRun, Run> task{
        .to = own_run(out, out_count, out_type, in, channel.rank, counts, displacements, type),
        .stores = out != MPI_IN_PLACE};
    if (channel.rank == root) {
      task.from = BlockRun(in, counts, displacements, channel.size, type);
    }
    task.from.pack();
    task.request = Request::scatterv(task.from.input(), task.from.blocks(), task.to.output(), root);
    return task;
  });
}

template <typename How, typename Theirs>
int all_to_all(How how, const void* in, int64_t in_count, MPI_Datatype in_type, void* out,
               int64_t count, MPI_Datatype type, MPI_Comm comm, Theirs theirs) {
  const Decision decision = of_bytes(count, type)
                                .refuse_if(is_refused_unless_in_place(in, in_count, in_type) ||
                                           is_refused(out, count, type));
  return route(how, Call::alltoall, comm, decision, theirs, [&](Channel& channel) {
    Movement<Run, Run> task{.to = Run(out, static_cast<uint64_t>(count * channel.size), type)};
    if (in == MPI_IN_PLACE) {
      task.to.pack();
      task.request = Request::all_to_all(task.to.input(), task.to.output());
    } else {
      task.from = Run(in, static_cast<uint64_t>(in_count * channel.size), in_type);
      task.from.pack();
      task.request = Request::all_to_all(task.from.input(), task.to.output());
    }
    return task;
  });
}

template <typename How, typename Count, typename Displacement, typename Theirs>
int all_to_allv(How how, const void* in, const Count* in_counts,
                const Displacement* in_displacements, MPI_Datatype in_type, void* out,
                const Count* counts, const Displacement* displacements, MPI_Datatype type,
                MPI_Comm comm, Theirs theirs) {
  const int size = blocks_of(comm);
  Decision decision;
  decision.refuse_if(is_refused(out, counts, size, type) ||
                     (in != MPI_IN_PLACE && is_refused(in, in_counts, size, in_type)));
  return route(how, Call::alltoallv, comm, decision, theirs, [&](Channel& channel) {
    Movement<BlockRun, BlockRun> task{.to =
                                          BlockRun(out, counts, displacements, channel.size, type)};
    BlockRun& given = in == MPI_IN_PLACE ? task.to : task.from;
    if (in != MPI_IN_PLACE) {
      task.from = BlockRun(in, in_counts, in_displacements, channel.size, in_type);
    }
    given.pack();
    task.request =
        Request::all_to_allv(given.input(), given.blocks(), task.to.output(), task.to.blocks());
    return task;
  });
}

template <typename How, typename Theirs>
int barrier(How how, MPI_Comm comm, Theirs theirs) {
  return route(how, Call::barrier, comm, {.bytes = 0}, theirs,
               [](Channel&) { return PlainTask{Request::barrier()}; });
}

}  // namespace tutti::mpi
