// The C++ interface: collectives and messages between the ranks of a communicator.
//
//   tutti::Communicator world = tutti::Communicator::init();
//   std::vector<float> gradients(n);
//   world.all_reduce(gradients);                                  // in place, sum, blocking
//   tutti::Work work = world.all_reduce_async(in, out, ReduceOp::max);
//   work.wait();
//
// Calls. All ranks of a communicator must make the same collective calls in the same order. Every
// call has three forms: all_reduce() blocks until it is complete, all_reduce_async() returns a Work
// at once, and prepare(Request::all_reduce(...)) plans it once, to be started many times. Between
// group_begin() and group_end() (group.h) no call blocks, whatever its form. request.h defines what
// each call reads and writes, and which buffers may overlap.
//
// Units. Counts are in elements, not bytes; 0 is allowed. Ranks are numbered within the
// communicator, except in Error::rank(), which is a rank of the job (see member()).
//
// Threads. Any thread may call. Calls on one communicator are ordered by their start, so concurrent
// collectives on one communicator need an order that the caller establishes, or one queue per
// thread (open_queues()). Different communicators are independent. A child of fork() must not call:
// Error(unsupported).
//
// Ownership. Buffers belong to the caller. They must stay allocated and untouched until the Work
// has completed or failed, or the communicator is destroyed. A communicator is destroyed with the
// last copy of its Communicator, once no thread is inside a call or a wait on it. A Work, a
// Prepared and a group do not keep it alive. Destruction abandons calls in flight: from then on
// nothing accesses their host buffers, and their Works fail with Error(aborted).
//
// Errors. Calls throw Error; the asynchronous forms report it through the Work.
//   invalid_argument  an argument is invalid, or the Communicator is empty
//   unsupported       the call is not available for these arguments, or on this machine
//                     (these two are detected before anything is sent: the communicator stays
//                     usable)
//   mismatch          the calls of two ranks do not match; the error names both, on every rank
//   rank_died         a process of the job exited or was killed; reported within seconds
//   connection_lost   a peer that is alive cannot be reached
//   timeout           the call's deadline passed; names the rank that probably caused the stall
//   corrupted         bytes changed in transit
//   aborted           a rank called abort(), or failed with an error of its own
//   system            the operating system refused a resource, for example memory or descriptors
// After a collective or message has failed with any code except the first two, the communicator is
// aborted on every rank and stays aborted: each further call throws the first error. Destroy the
// communicator; the surviving ranks can continue in the communicator that shrink() returns. The
// functions below list only errors with a particular meaning.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/error.h"
#include "base/wire_format.h"
#include "collectives/request.h"

namespace tutti {

class Deadline;
struct InitStats;  // defined in transport/bootstrap/control/init_stats.h
struct Job;
struct Plan;       // defined in collectives/program/plan.h
class AbortState;  // defined in base/abort.h
class Communicator;
class Paths;  // defined in transport/paths/paths.h
class Prepared;
class Work;

namespace internal {
// State of a wait without progress. Times are in nanoseconds.
struct StallState {
  int64_t since_ns = 0;
  int64_t next_look_ns = 0;
  int64_t asked_ns = 0;  // duration without progress when the peers were last asked; 0: not asked
  bool reported = false;
  bool has_asked = false;  // true: the peers were asked before the last progress
};
class CommunicatorImpl;
struct Operation;
// Returns a pointer that identifies the rank that made the call, within its job; null if the call
// completed at once, or if its communicator is destroyed.
const void* rank_behind(const Work& work);
// Returns the communicator's abort state, which is valid while the communicator exists.
const AbortState& abort_of(const Communicator& communicator);
// Returns the paths between the ranks; null if there is only one rank.
Paths* paths_of(const Communicator& communicator);
// Returns the plan of a call on this rank; null if the call needs no peers. The plan is valid while
// `prepared` exists.
const Plan* plan_of(const Prepared& prepared);
}  // namespace internal

enum class WorkState : uint8_t { in_flight, complete, failed };

// A call in flight, which completes, fails or is aborted exactly once. Copies share the call.
// Dropping all copies does not cancel the call, and keeping one does not keep the communicator
// alive. One thread at a time may use a handle. While a thread tests or waits for a call, it makes
// progress on all calls of the job, and checks the deadline and the peers of this call. The
// progress thread (TUTTI_PROGRESS_THREAD) makes progress only.
class Work {
 public:
  Work() = default;  // makes a call that is already complete

  // Makes progress and returns the state of the call. Never blocks; never throws the call's error,
  // which error() returns (nullopt unless the call has failed).
  WorkState poll();
  std::optional<Error> error() const;
  // Makes progress; returns true once the call is complete. Never blocks. Throws the call's Error.
  bool test();
  // Blocks until the call is complete. Throws the call's Error. May be called repeatedly.
  void wait();
  // Blocks until the call is complete, for at most `timeout`; returns false if that time passed
  // first. The call then continues: only the call's own deadline (CallOptions::timeout) aborts it.
  // Throws the call's Error.
  bool wait_for(std::chrono::nanoseconds timeout);
  // Invokes `callback` exactly once: on completion with null, on failure with the error. The
  // callback runs on the thread that makes progress: one that tests or waits for any call of the
  // job, the progress thread, or the caller of on_end() if the call has already ended. The callback
  // may start calls, but must neither block nor throw. A second callback replaces the first.
  void on_end(std::function<void(const Error*)> callback);
  // Returns source, tag, dtype and count of a completed receive's message. Throws
  // Error(invalid_argument) for all other calls.
  MessageInfo received() const;
  // Aborts the call's communicator on every rank unless the call is complete. Never blocks. Throws
  // the call's Error if the call has already failed.
  void abort(const std::string& reason);

 private:
  friend class Communicator;
  friend class Prepared;
  friend class internal::CommunicatorImpl;
  friend const void* internal::rank_behind(const Work& work);
  Work(std::weak_ptr<internal::CommunicatorImpl> comm,
       std::shared_ptr<internal::Operation> operation)
      : comm_(std::move(comm)), operation_(std::move(operation)) {}
  // Makes a handle of a call that the communicator makes for itself. `owner` must outlive the
  // handle.
  Work(internal::CommunicatorImpl* owner, std::shared_ptr<internal::Operation> operation)
      : owner_(owner), operation_(std::move(operation)) {}
  bool wait_until(const Deadline& deadline);
  // Returns the communicator; null once the communicator is destroyed, and for a Work made by the
  // default constructor.
  std::shared_ptr<internal::CommunicatorImpl> comm() const;
  std::weak_ptr<internal::CommunicatorImpl> comm_;
  internal::CommunicatorImpl* owner_ = nullptr;
  std::shared_ptr<internal::Operation> operation_;
  internal::StallState stall_state_;
};

// The decision of agree().
struct Agreement {
  uint64_t flags = 0;       // bitwise AND of the flags of all ranks that took part
  std::vector<int> living;  // the ranks that took part, ascending
};

// Identifies the set of a communicator's members; equal on all members.
struct Membership {
  uint64_t epoch = 0;   // 0 for the job's first communicator; each shrink() and grow() raises it
  uint64_t digest = 0;  // hash of the members' job ranks, in order
  bool operator==(const Membership&) const = default;
};

struct CallOptions {
  // Algorithm: empty or "auto" (the library chooses), a name from `tutti bench COLLECTIVE
  // --algorithm list`, "hierarchical(A,B,C)", or the path of an MSCCL file (*.xml). Must be equal
  // on all ranks. Error(unsupported) if the algorithm does not support the call.
  std::string_view algorithm;
  // For buffers in device memory (Buffer::space): the CUDA stream on which the call is enqueued; a
  // null handle is the legacy stream. The call returns as soon as it is enqueued (within a group,
  // at the group's end), and its Work is already complete. Calls of one communicator run in order,
  // whatever their streams; captured calls are ordered by their graphs and the streams that launch
  // them, which must give the same order on all ranks. On the stream, a send is complete when its
  // message has left the buffer. A receive provides no MessageInfo. After an abort, enqueued calls
  // end at once with undefined buffer contents, and the next call throws.
  Stream stream;
  // Time limit of the call, measured from its start. If a thread tests or waits for the call after
  // this time, the communicator is aborted with Error(timeout). Unset: the setting TUTTI_TIMEOUT.
  // Zero: no limit. Negative: Error(invalid_argument).
  std::optional<std::chrono::nanoseconds> timeout;
  // Restricts the choice to canonical algorithms. With them, the bits of the result depend only on
  // the inputs and the number of ranks. TUTTI_DETERMINISTIC=1 sets this for every call.
  bool deterministic = false;
  // Calls, on any communicator, that must complete before this call starts. They may write this
  // call's input. If one of them fails, this call fails with Error(aborted). The lists of the ranks
  // may differ, but must not make ranks wait for each other in a circle. A list that is not empty
  // is an Error(invalid_argument) in prepare(), and an Error(unsupported) for device memory.
  std::span<const Work> after;
  // Tag of a message: 0 to kLargestTag; a receive also accepts kAnyTag.
  int tag = 0;
  // Allows a receive to accept a message shorter than its buffer. If not set, a shorter message is
  // an Error(mismatch). A message longer than the buffer is an Error(mismatch) in any case.
  bool may_be_shorter = false;
  // Index of the queue that orders the call: 0 to the `count` passed to open_queues().
  int queue = 0;
  // Format in which the f32 elements of a collective or message travel (base/wire_format.h); must
  // be equal on all ranks. Elements are rounded when they are sent, and partial sums when they are
  // forwarded; within a rank, partial sums are f32. Every rank that gets a result, including the
  // one that computed it, gets the rounded values, so all have the same bits.
  // Error(invalid_argument) for other element types; Error(unsupported) for user operators,
  // receives with may_be_shorter, and prepared calls on device memory.
  WireFormat wire = WireFormat::plain;
};

// A planned call, whose buffers and options are fixed. The call must be complete before it is
// started again. Copies share the plan. A Prepared does not keep the communicator alive: once the
// communicator is destroyed, start() and run() throw Error(invalid_argument). Any thread may call.
class Prepared {
 public:
  Prepared() = default;
  Work start();
  void run();
  // Returns the name of the chosen algorithm; empty if the call needs none.
  std::string algorithm() const;

 private:
  friend class Communicator;
  friend const Plan* internal::plan_of(const Prepared& prepared);
  Prepared(std::weak_ptr<internal::CommunicatorImpl> comm,
           std::shared_ptr<const internal::Operation> call)
      : comm_(std::move(comm)), call_(std::move(call)) {}
  std::shared_ptr<internal::CommunicatorImpl> comm() const;
  std::weak_ptr<internal::CommunicatorImpl> comm_;
  std::shared_ptr<const internal::Operation> call_;
};

// Memory from Communicator::allocate() or allocate_on_device(), page-aligned. It is freed when the
// last copy is destroyed.
template <typename T>
using Memory = std::shared_ptr<T[]>;

// Handle of a registration of memory. The registration ends when the last copy is destroyed.
using Registration = std::shared_ptr<void>;

class Communicator {
 public:
  // Joins the job and returns the communicator of all its ranks. Rank, size and rendezvous come
  // from the environment of the launcher (transport/bootstrap/discovery/job_sources.h); without a
  // launcher the job has one rank. Blocks until all ranks have joined, for at most
  // TUTTI_INIT_TIMEOUT seconds. Error(bootstrap) names the missing ranks or the reason of a
  // refusal; Error(rank_died) if a rank exits meanwhile.
  //
  // The last ranks of a job may be spares (TUTTI_SPARES), which are not in the communicator that
  // init() returns on the other ranks. On a spare, init() blocks until grow() adds the spare, and
  // returns the communicator that grow() returns on the other ranks. If a spare is not needed by
  // the end of the job, its process exits with code 0 (under `tutti run` with a reserved code).
  static Communicator init();
  // Joins a job that the caller describes (transport/bootstrap/discovery/job.h); ranks may be
  // threads. On a spare that is not needed, throws Error(aborted) or, if Job::unneeded_spares_exit
  // is set, exits the process.
  static Communicator init(const Job& job);
  // Joins a job in a separate thread. get() of the future returns the communicator, or throws. One
  // thread can thus drive several ranks; it must make their calls in one group (group.h). Such a
  // thread must destroy the communicators of the highest ranks first, because a leaving rank waits
  // up to two seconds for the ranks below it in the control tree. Destroying the future blocks
  // until the join has ended. Throws Error(system) if no thread can be started.
  [[nodiscard]] static std::future<Communicator> init_async(const Job& job);

  int rank() const;
  int size() const;
  std::string transport() const;  // "shm", "tcp", "shm+tcp", "none" (one rank)
  // Describes a rank for messages: "rank 3 (node7, pid 1234)". Error(invalid_argument) if out of
  // range.
  std::string describe(int rank) const;
  // Converts a rank of the job (Error::rank()) to a rank of this communicator; nullopt for a
  // non-member.
  std::optional<int> member(int rank_of_job) const;
  // Returns the identity of the member set. Local and cheap. Communicators made by split() and
  // create() have their parent's epoch.
  Membership membership() const;
  // Returns statistics of the bootstrap.
  const InitStats& init_stats() const;

  // Splits the communicator: ranks with the same colour form a new communicator, ordered by (key,
  // rank). Collective; blocks. A rank with a negative colour gets an empty Communicator, on which
  // only valid() may be called.
  Communicator split(int color, int key = 0);
  // Returns a new communicator of `ranks` (ranks of this communicator), in this order. Collective
  // among these ranks only; blocks. Threads may create communicators of different ranks
  // concurrently; `tag` (0 to kLargestTag) distinguishes concurrent calls with the same ranks.
  // Error(invalid_argument) if the list is invalid or lacks this rank; Error(mismatch) if the lists
  // differ in order; Error(timeout) if one of the ranks does not call create().
  Communicator create(std::span<const int> ranks, int tag = 0);
  Communicator duplicate() { return split(0, rank()); }

  // Opens queues, so that there are queues 0 to `count`. Collectives of one queue run in order;
  // collectives of different queues run concurrently. CallOptions::queue selects the queue. The
  // order of calls within each queue must be equal on all ranks; point-to-point messages of
  // different queues never match. A failure aborts the whole communicator. Collective; blocks.
  // Queues exist until the communicator is destroyed, and are not inherited by communicators
  // created from it. Error(invalid_argument) if `count` exceeds kMostQueues, or is below the
  // `count` of an earlier call.
  static constexpr int kMostQueues = 16;
  void open_queues(int count);

  // shrink(), agree() and grow() serve recovery after members have died (Error(rank_died)), on an
  // aborted communicator or a working one. They block, and are collective among the surviving
  // members. Any member, including rank 0, may die meanwhile. A quorum must take part: a majority
  // of the original members, or half of them including the first one; or any number, once all other
  // members have certainly ended (`tutti run` saw their processes end, or they have left the job).
  // So at most one side of a partitioned job continues. Error(connection_lost): this rank is
  // outside the quorum. Error(timeout): a member did not make the call within TUTTI_TIMEOUT. This
  // rank may repeat the call, which then continues the interrupted one.
  //
  // shrink() returns a communicator of the survivors, in the order of their ranks (MPI's ULFM:
  // MPIX_Comm_shrink). Members that are alive but cannot reach each other for data are separated:
  // the host with the largest number of hosts that it cannot reach is excluded with
  // Error(connection_lost); on a tie the host with fewer members, then the later host. If two
  // members of one host cannot reach each other, the later member is excluded. The old communicator
  // still has to be destroyed.
  Communicator shrink();
  // Returns the bitwise AND of the survivors' flags, and the list of the survivors. Both are the
  // same on all survivors, which can thus decide, for example, whether all have reached the same
  // point (MPIX_Comm_agree).
  Agreement agree(uint64_t flags = ~uint64_t{0});
  // Returns a communicator of all surviving ranks of the job, which must be in this communicator,
  // followed by spares (`tutti run --spares`), on which init() returns it. Its size is size() +
  // `count`, or less if too few spares are left. size() counts members that have died, so spares
  // also replace these: of 8 members with 2 dead, grow(0) adds 2 spares, and grow(1) adds 3.
  // Collective among the survivors. Throws the errors of shrink(), and Error(invalid_argument) if
  // another rank of the job is active, or `count` is negative.
  Communicator grow(int count);
  bool valid() const { return impl_ != nullptr; }

  // Allocates `count` zeroed elements that the other ranks of the host can read in place, so that
  // collectives need no copy. For all other uses it is ordinary memory. Local. A forked child
  // shares the memory with its parent. Error(invalid_argument) if the size overflows, Error(system)
  // if memory is exhausted.
  template <typename T>
  Memory<T> allocate(size_t count) {
    static_assert(std::is_trivially_copyable_v<T>);
    const std::shared_ptr<void> bytes = allocate_bytes(count, sizeof(T));
    return Memory<T>(bytes, static_cast<T*>(bytes.get()));
  }

  // Makes existing memory readable in place by the other ranks of the host while the registration
  // lives. The whole pages of the range keep their addresses and contents, but become shared pages.
  // Local. No thread may access the memory during the call, nor while the registration ends.
  // Error(invalid_argument) if the memory is not plain private memory (malloc, new), or is locked
  // (mlock); Error(system) if there is no room. Returns an empty Registration if no other rank
  // could read the memory.
  //
  // A device that had pinned the pages (cudaHostRegister, ibv_reg_mr) would silently keep using the
  // old ones: pin memory after its registration, and unpin it before the registration ends. A
  // forked child sees the parent's later writes, except in pages that the child has written itself.
  // Free the memory only after the registration has ended; memory freed earlier is no longer lent,
  // nor is private memory mapped at its address.
  [[nodiscard]] Registration register_memory(void* data, size_t bytes);

  // Allocates uninitialised memory of this thread's current GPU that supports windows, including
  // multicast over NVSwitch. Error(unsupported) without a usable GPU.
  template <typename T>
  static Memory<T> allocate_on_device(size_t count) {
    static_assert(std::is_trivially_copyable_v<T>);
    const std::shared_ptr<void> bytes = device_bytes(count, sizeof(T));
    return Memory<T>(bytes, static_cast<T*>(bytes.get()));
  }

  // Makes GPU memory, of the same size on every rank, a window while the registration lives:
  // kernels of the other ranks read and write it in place. Collective; blocks. A call needs no
  // copies if each of its buffers is at the same offset of the same window on every rank (in place:
  // at the rank's own block). Returns an empty Registration if calls do not use kernels. All ranks
  // must end a registration between the same calls, with no call in flight; after that they must
  // not launch graphs that were captured with it. Error(unsupported) if the memory cannot be
  // shared.
  [[nodiscard]] Registration register_window(void* data, size_t bytes);

  // Returns the name of the algorithm that this call would use; empty if it needs none. Collective.
  std::string algorithm_of(const Request& request, const CallOptions& options = {});

  Work start(const Request& request, const CallOptions& options = {});
  void run(const Request& request, const CallOptions& options = {});
  Prepared prepare(const Request& request, const CallOptions& options = {});

  void all_reduce(ConstBuffer input, Buffer output, Reduction op = ReduceOp::sum,
                  const CallOptions& options = {}) {
    run(Request::all_reduce(input, output, std::move(op)), options);
  }
  Work all_reduce_async(ConstBuffer input, Buffer output, Reduction op = ReduceOp::sum,
                        const CallOptions& options = {}) {
    return start(Request::all_reduce(input, output, std::move(op)), options);
  }
  void all_gather(ConstBuffer input, Buffer output, const CallOptions& options = {}) {
    run(Request::all_gather(input, output), options);
  }
  Work all_gather_async(ConstBuffer input, Buffer output, const CallOptions& options = {}) {
    return start(Request::all_gather(input, output), options);
  }
  void all_gatherv(ConstBuffer input, Buffer output, Blocks blocks,
                   const CallOptions& options = {}) {
    run(Request::all_gatherv(input, output, std::move(blocks)), options);
  }
  Work all_gatherv_async(ConstBuffer input, Buffer output, Blocks blocks,
                         const CallOptions& options = {}) {
    return start(Request::all_gatherv(input, output, std::move(blocks)), options);
  }
  void reduce_scatter(ConstBuffer input, Buffer output, Reduction op = ReduceOp::sum,
                      const CallOptions& options = {}) {
    run(Request::reduce_scatter(input, output, std::move(op)), options);
  }
  Work reduce_scatter_async(ConstBuffer input, Buffer output, Reduction op = ReduceOp::sum,
                            const CallOptions& options = {}) {
    return start(Request::reduce_scatter(input, output, std::move(op)), options);
  }
  void reduce_scatterv(ConstBuffer input, Buffer output, Blocks blocks,
                       Reduction op = ReduceOp::sum, const CallOptions& options = {}) {
    run(Request::reduce_scatterv(input, output, std::move(blocks), std::move(op)), options);
  }
  Work reduce_scatterv_async(ConstBuffer input, Buffer output, Blocks blocks,
                             Reduction op = ReduceOp::sum, const CallOptions& options = {}) {
    return start(Request::reduce_scatterv(input, output, std::move(blocks), std::move(op)),
                 options);
  }
  void broadcast(ConstBuffer input, Buffer output, int root, const CallOptions& options = {}) {
    run(Request::broadcast(input, output, root), options);
  }
  Work broadcast_async(ConstBuffer input, Buffer output, int root,
                       const CallOptions& options = {}) {
    return start(Request::broadcast(input, output, root), options);
  }
  void reduce(ConstBuffer input, Buffer output, Reduction op, int root,
              const CallOptions& options = {}) {
    run(Request::reduce(input, output, std::move(op), root), options);
  }
  Work reduce_async(ConstBuffer input, Buffer output, Reduction op, int root,
                    const CallOptions& options = {}) {
    return start(Request::reduce(input, output, std::move(op), root), options);
  }
  void gather(ConstBuffer input, Buffer output, int root, const CallOptions& options = {}) {
    run(Request::gather(input, output, root), options);
  }
  Work gather_async(ConstBuffer input, Buffer output, int root, const CallOptions& options = {}) {
    return start(Request::gather(input, output, root), options);
  }
  void gatherv(ConstBuffer input, Buffer output, Blocks blocks, int root,
               const CallOptions& options = {}) {
    run(Request::gatherv(input, output, std::move(blocks), root), options);
  }
  Work gatherv_async(ConstBuffer input, Buffer output, Blocks blocks, int root,
                     const CallOptions& options = {}) {
    return start(Request::gatherv(input, output, std::move(blocks), root), options);
  }
  void scatter(ConstBuffer input, Buffer output, int root, const CallOptions& options = {}) {
    run(Request::scatter(input, output, root), options);
  }
  Work scatter_async(ConstBuffer input, Buffer output, int root, const CallOptions& options = {}) {
    return start(Request::scatter(input, output, root), options);
  }
  void scatterv(ConstBuffer input, Blocks blocks, Buffer output, int root,
                const CallOptions& options = {}) {
    run(Request::scatterv(input, std::move(blocks), output, root), options);
  }
  Work scatterv_async(ConstBuffer input, Blocks blocks, Buffer output, int root,
                      const CallOptions& options = {}) {
    return start(Request::scatterv(input, std::move(blocks), output, root), options);
  }
  void all_to_all(ConstBuffer input, Buffer output, const CallOptions& options = {}) {
    run(Request::all_to_all(input, output), options);
  }
  Work all_to_all_async(ConstBuffer input, Buffer output, const CallOptions& options = {}) {
    return start(Request::all_to_all(input, output), options);
  }
  void all_to_allv(ConstBuffer input, Blocks input_blocks, Buffer output, Blocks output_blocks,
                   const CallOptions& options = {}) {
    run(Request::all_to_allv(input, std::move(input_blocks), output, std::move(output_blocks)),
        options);
  }
  Work all_to_allv_async(ConstBuffer input, Blocks input_blocks, Buffer output,
                         Blocks output_blocks, const CallOptions& options = {}) {
    return start(
        Request::all_to_allv(input, std::move(input_blocks), output, std::move(output_blocks)),
        options);
  }
  void scan(ConstBuffer input, Buffer output, Reduction op = ReduceOp::sum,
            const CallOptions& options = {}) {
    run(Request::scan(input, output, std::move(op)), options);
  }
  Work scan_async(ConstBuffer input, Buffer output, Reduction op = ReduceOp::sum,
                  const CallOptions& options = {}) {
    return start(Request::scan(input, output, std::move(op)), options);
  }
  void exscan(ConstBuffer input, Buffer output, Reduction op = ReduceOp::sum,
              const CallOptions& options = {}) {
    run(Request::exscan(input, output, std::move(op)), options);
  }
  Work exscan_async(ConstBuffer input, Buffer output, Reduction op = ReduceOp::sum,
                    const CallOptions& options = {}) {
    return start(Request::exscan(input, output, std::move(op)), options);
  }
  void barrier(const CallOptions& options = {}) { run(Request::barrier(), options); }
  Work barrier_async(const CallOptions& options = {}) { return start(Request::barrier(), options); }
  void send(ConstBuffer buffer, int to, const CallOptions& options = {}) {
    run(Request::send(buffer, to), options);
  }
  Work send_async(ConstBuffer buffer, int to, const CallOptions& options = {}) {
    return start(Request::send(buffer, to), options);
  }
  // Receives a message and returns its description. The description is empty for device memory, and
  // within a group, where the Work from group_end_async() provides it.
  MessageInfo recv(Buffer buffer, int from, const CallOptions& options = {}) {
    return receive(Request::recv(buffer, from), options);
  }
  Work recv_async(Buffer buffer, int from, const CallOptions& options = {}) {
    return start(Request::recv(buffer, from), options);
  }
  // Computes buffer[i] = buffer[i] op received[i] (Request::recv_reduce). Host memory only.
  MessageInfo recv_reduce(Buffer buffer, int from, Reduction op = ReduceOp::sum,
                          const CallOptions& options = {}) {
    return receive(Request::recv_reduce(buffer, from, std::move(op)), options);
  }
  Work recv_reduce_async(Buffer buffer, int from, Reduction op = ReduceOp::sum,
                         const CallOptions& options = {}) {
    return start(Request::recv_reduce(buffer, from, std::move(op)), options);
  }
  // Returns the message that the next receive with this source and tag would take, without
  // receiving it; nullopt if none has arrived. Never blocks.
  std::optional<MessageInfo> probe(int from = kAnySource, int tag = kAnyTag);
  // Blocks until there is a message that probe() would return, and returns its description.
  MessageInfo await_message(int from = kAnySource, int tag = kAnyTag);

  // Run the collectives in place, on one buffer.
  void all_reduce(Buffer values, const Reduction& op = ReduceOp::sum) {
    all_reduce(values, values, op);
  }
  void broadcast(Buffer values, int root) { broadcast(values, values, root); }

  // Sets a hook, for programs whose peers depend on other communication as well. It is invoked
  // repeatedly, at least every millisecond, while a thread of this process waits for a call and
  // nothing progresses. The hook must neither block for long nor throw. It applies to all
  // communicators of the job; an empty function removes it.
  void while_waiting(std::function<void()> hook);

  // Aborts the communicator on every rank with Error(aborted, reason). Thread-safe; never blocks.
  // The buffers of a call in flight may be reused once its Work has reported the failure.
  void abort(const std::string& reason);
  // Returns the error with which the communicator was aborted; nullopt while it works. Never
  // blocks.
  std::optional<Error> failure() const;

  Communicator() = default;
  explicit Communicator(std::shared_ptr<internal::CommunicatorImpl> impl)
      : impl_(std::move(impl)) {}

 private:
  MessageInfo receive(const Request& request, const CallOptions& options);
  std::shared_ptr<void> allocate_bytes(size_t count, size_t element_bytes);
  static std::shared_ptr<void> device_bytes(size_t count, size_t element_bytes);
  friend const AbortState& internal::abort_of(const Communicator& communicator);
  friend Paths* internal::paths_of(const Communicator& communicator);
  std::shared_ptr<internal::CommunicatorImpl> impl_;
};

}  // namespace tutti
