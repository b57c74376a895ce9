// The library's C++ face: collectives among the ranks of a communicator.
//
//   tutti::Communicator world = tutti::Communicator::init();
//   std::vector<float> gradients(n);
//   world.all_reduce(gradients);                                  // in place, sum, blocking
//   tutti::Work work = world.all_reduce_async(in, out, ReduceOp::max);
//   work.wait();
//
// All ranks of a communicator make the same collective calls in the same order. A call that does
// not fit another rank's is an Error(mismatch) on every rank, naming both sides; a dead rank is an
// Error(rank_died) within seconds. After an error the communicator is aborted for good.
//
// Threads: calls on one communicator may come from any thread; they are ordered by who calls first,
// so concurrent collectives on one communicator need an order of the caller's making, or a queue
// for each thread (open_queues()). Different communicators are independent.
//
// Counts are in elements. What each call reads, writes and allows in place is said in request.h.
//
// Lifetime: a communicator is destroyed with the last copy of its Communicator, once no thread is
// inside a call or a wait on it. A Work, a Prepared and a group only refer to it. Calls in flight
// are then abandoned: nothing touches their host buffers any more, and their Works fail with
// Error(aborted). Buffers are the caller's and must stay alive and untouched until the Work has
// completed or failed, or the communicator is destroyed.
//
// Every call comes in three forms: all_reduce() blocks, all_reduce_async() returns a Work, and
// prepare(Request::all_reduce(...)) plans it once, to be started many times. Between group_begin()
// and group_end() (group.h) no call blocks, whatever its form.
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
struct InitStats;  // transport/bootstrap/control/init_stats.h
struct Job;
struct Plan;       // collectives/program/plan.h
class AbortState;  // base/abort.h
class Communicator;
class Paths;  // transport/paths/paths.h
class Prepared;
class Work;

namespace internal {
// How long a handle on a call has seen no progress, and what was done about it.
struct Patience {
  int64_t since_ns = 0;
  int64_t next_look_ns = 0;
  int64_t asked_ns = 0;  // how long it had lasted when the peers were last asked
  bool said = false;
  bool has_asked = false;  // in this call, before what moved last
};
class CommunicatorImpl;
struct Operation;
// Tells apart the ranks whose calls progress by themselves; null: a call of none.
const void* rank_behind(const Work& work);
// How it stands; valid as long as the communicator.
const AbortState& abort_of(const Communicator& communicator);
// How the ranks reach each other; null where there is only one.
Paths* paths_of(const Communicator& communicator);
// What a call does on this rank; null where it needs no others. Valid as long as the Prepared.
const Plan* plan_of(const Prepared& prepared);
}  // namespace internal

enum class WorkState : uint8_t { under_way, complete, failed };

// A call in flight. It completes, fails or is aborted, once. Copies share the call; dropping every
// copy does not cancel it, and holding one does not keep the communicator: destroying that fails
// the calls that are still in flight. A handle belongs to one thread at a time. Deadlines and
// stalled peers are checked while a thread tests or waits.
class Work {
 public:
  Work() = default;  // a call that is already complete

  // Makes progress, and says how the call stands, without an exception; error() is why it failed.
  WorkState poll();
  std::optional<Error> error() const;
  // Makes progress; true once the call is complete. Throws the call's Error.
  bool test();
  // Returns when the call is complete. Throws the call's Error.
  void wait();
  // False when `timeout` passed first; that is no abort: the call goes on. (CallOptions::timeout is
  // the call's own deadline: passing it aborts.)
  bool wait_for(std::chrono::nanoseconds timeout);
  // Calls `callback` once, when the call has ended: with null, or with why it failed. By a thread
  // that tests or waits, for whatever call of the job, or by the progress thread; from within
  // on_end() if the call is over already. It may make calls, but must neither wait nor throw. One
  // for each call: a second takes the place of the first.
  void on_end(std::function<void(const Error*)> callback);
  // What a receive that is complete has received; of others Error(invalid_argument).
  MessageInfo received() const;
  // Aborts the call's communicator on every rank, if the call is not complete.
  void abort(const std::string& reason);

 private:
  friend class Communicator;
  friend class Prepared;
  friend class internal::CommunicatorImpl;
  friend const void* internal::rank_behind(const Work& work);
  Work(std::weak_ptr<internal::CommunicatorImpl> comm,
       std::shared_ptr<internal::Operation> operation)
      : comm_(std::move(comm)), operation_(std::move(operation)) {}
  // A call that the communicator makes for itself: it outlives the handle.
  Work(internal::CommunicatorImpl* owner, std::shared_ptr<internal::Operation> operation)
      : owner_(owner), operation_(std::move(operation)) {}
  bool wait_until(const Deadline& deadline);
  // Null once the communicator is destroyed, and for a call that was complete at once.
  std::shared_ptr<internal::CommunicatorImpl> comm() const;
  std::weak_ptr<internal::CommunicatorImpl> comm_;
  internal::CommunicatorImpl* owner_ = nullptr;
  std::shared_ptr<internal::Operation> operation_;
  internal::Patience patience_;
};

// What the members of a communicator that are left have agreed on.
struct Agreement {
  uint64_t flags = 0;       // the bits that all of them have given
  std::vector<int> living;  // the ranks that took part, in ascending order
};

// Which members a communicator has: a value that is equal on all of them.
struct Membership {
  uint64_t epoch = 0;   // 0 for the job's first communicator; each shrink() and grow() raises it
  uint64_t digest = 0;  // hash of the members, as ranks of the job, in order
  bool operator==(const Membership&) const = default;
};

struct CallOptions {
  // Empty or "auto": the library chooses. Else a name that `tutti bench COLLECTIVE --algorithm
  // list` shows, "hierarchical(A,B,C)", or the path of an MSCCL file (*.xml).
  std::string_view algorithm;
  // Of calls on device memory (Buffer::space): they are put into this CUDA stream, and are over for
  // the host when they are there; within a group, by its end. A null handle is the legacy stream.
  // The calls of a communicator run one after the other, in whatever streams they are; those that
  // were captured as their graphs and the streams of these say, which must order them alike on all
  // ranks. A message is sent when it has left the buffer; nothing is told of one that was received.
  // After an abort calls end at once, with anything in their buffers: the next call throws.
  Stream stream;
  // The call's deadline, counted from its start; passing it aborts the communicator. Nothing: the
  // setting TUTTI_TIMEOUT. Zero, here as there: no deadline. Negative: Error(invalid_argument).
  std::optional<std::chrono::nanoseconds> timeout;
  // Canonical algorithms only: the bits depend on the inputs and the number of ranks, on nothing
  // else. TUTTI_DETERMINISTIC=1 asks for it in every call.
  bool deterministic = false;
  // The call starts when these are complete, on whatever communicator: they may write its input. If
  // one of them fails, this one does. A message counts as sent or received from then on. Alike on
  // all ranks, or else such that no rank waits for itself.
  std::span<const Work> after;
  // Of messages: from 0 to kLargestTag, of a receive also kAnyTag.
  int tag = 0;
  // Of a receive: than its buffer. Else that is an Error(mismatch), as a longer one always is.
  bool may_be_shorter = false;
  // The queue of the communicator that the call goes into: 0, or one of open_queues().
  int queue = 0;
  // How the f32 elements of a collective or message travel (base/wire_format.h); alike on all
  // ranks. Each is rounded when it is sent, and each sum when it is sent on: partial sums within a
  // rank are f32. All ranks that get a result, the one that made it too, get what travelled, and so
  // the same bits. Of other element types, operators of the caller's, receives that may be shorter
  // and prepared calls on device memory: Error(invalid_argument, unsupported).
  WireFormat wire = WireFormat::plain;
};

// A call that is planned: start() does no more than start it. The buffers stay the same; one start
// must be done before the next. Copies share the plan. It does not keep the communicator: start()
// and run() throw Error(invalid_argument) once that is destroyed. Threads: as Communicator.
class Prepared {
 public:
  Prepared() = default;
  Work start();
  void run();
  // The name of the algorithm that was chosen; empty where none is needed.
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

// Memory from Communicator::allocate(). Aligned to a page; zeroed.
template <typename T>
using Memory = std::shared_ptr<T[]>;

// Memory that was registered; the last copy takes it back.
using Registration = std::shared_ptr<void>;

class Communicator {
 public:
  // The world: every rank of the job, as whatever launcher started it tells
  // (transport/bootstrap/discovery/job_sources.h; alone without any). Blocks until all ranks are
  // there. The last ranks of a job may be spares (the setting TUTTI_SPARES): the world is without
  // them, and theirs is what grow() makes with them. One that was not needed ends its process when
  // the job has ended, with exit code 0, or under `tutti run` with one by which that knows it.
  static Communicator init();
  // The same for a job described by the caller (transport/bootstrap/discovery/job.h); ranks may be
  // threads.
  static Communicator init(const Job& job);
  // The same in a thread of its own, so that the caller does not block: get() gives the
  // communicator, or throws. So one thread can be several ranks, whose calls it makes in one group
  // (group.h). It lets go of the last ranks first: a rank that leaves waits for those below it in
  // the tree of ranks, two seconds at most. To let go of the future waits for what comes of it.
  [[nodiscard]] static std::future<Communicator> init_async(const Job& job);

  int rank() const;
  int size() const;
  std::string transport() const;  // "shm", "tcp", "shm+tcp", "none" (one rank)
  // "rank 3 (node7, pid 1234)"
  std::string describe(int rank) const;
  // The rank that a rank of the job (Error::rank()) has here; nothing for one that is no member.
  std::optional<int> member(int rank_of_job) const;
  // Communicators from split() and create() have their parent's epoch. Local and cheap.
  Membership membership() const;
  // What it took the ranks of the job to find each other.
  const InitStats& init_stats() const;

  // Ranks with the same colour form a new communicator, ordered by (key, rank). Collective. A
  // negative colour joins none; the returned communicator is then empty: only valid() may be
  // called.
  Communicator split(int color, int key = 0);
  // A new communicator of these ranks of this one, in this order: called by them only, without a
  // word from the others. Threads may make communicators of different ranks at the same time; a
  // `tag` from 0 to kLargestTag tells apart those of the same ranks. Throws Error(mismatch), on all
  // of them, where the ranks give another order, and Error(timeout) where one does not call.
  Communicator create(std::span<const int> ranks, int tag = 0);
  Communicator duplicate() { return split(0, rank()); }

  // The collectives of one queue run one after the other, those of different queues side by side:
  // a call goes into the one that its CallOptions name. Each queue has an order of calls of its
  // own, which must be equal on all ranks, and messages of its own. Every failure is that of the
  // whole communicator. Collective; queues 1 to `count` are open afterwards, until the communicator
  // is destroyed. They exist on this communicator alone: what split(), create(), shrink() and
  // grow() return has none. Throws Error(invalid_argument) for a count that is not in 0 to
  // kMostQueues, or smaller than the number of queues that are open.
  static constexpr int kMostQueues = 16;
  void open_queues(int count);

  // For when members have died (Error(rank_died)), of a communicator that was aborted or not.
  // Collective among the members that are left, any of which may die meanwhile, also rank 0. They
  // decide as a quorum: a majority of the communicator's original members, or half of them with the
  // first one; or any number of members, once all others have certainly ended (`tutti run` saw it,
  // or they have left the job). A job that is cut in two so continues on one side only.
  // Error(connection_lost): not this side. Error(timeout): a member does not call (the setting
  // TUTTI_TIMEOUT); the same call may be made again, and continues where it was.
  //
  // A communicator of those that are left, in their order (MPI's ULFM: MPIX_Comm_shrink). Members
  // that are alive but cannot reach each other for data are separated: the hosts with the most
  // broken pairs, and of equal ones the smaller and later, are excluded with
  // Error(connection_lost).
  Communicator shrink();
  // What they agree on, alike on all of them: for whether all have come to the same point
  // (MPIX_Comm_agree).
  Agreement agree(uint64_t flags = ~uint64_t{0});
  // Collective among all ranks of the job that are left, without the spares (`tutti run --spares`):
  // a communicator of them and of so many spares, as far as there are any, whose init() returns it.
  // The newcomers come last. Throws as shrink(), and Error(invalid_argument) where ranks take part
  // in the job that are not in this communicator.
  Communicator grow(int count);
  bool valid() const { return impl_ != nullptr; }

  // Library-allocated memory, zeroed: the other ranks of the host read it where it lies, so that
  // collectives copy nothing aside. Of no use to ranks on other hosts, and no loss. A child of
  // fork() shares it with its parent.
  template <typename T>
  Memory<T> allocate(size_t count) {
    static_assert(std::is_trivially_copyable_v<T>);
    const std::shared_ptr<void> bytes = allocate_bytes(count, sizeof(T));
    return Memory<T>(bytes, static_cast<T*>(bytes.get()));
  }

  // Makes memory that the caller has already got such memory, as long as the registration lives:
  // its whole pages keep their address and contents, and are shared. Nobody may touch it during the
  // call, nor while the registration ends. Throws Error(invalid_argument) where it is not plain
  // private memory (malloc, new), or is locked (mlock).
  //
  // The pages are replaced: a device for which they were pinned before (cudaHostRegister,
  // ibv_reg_mr) would go on to use the old ones, unnoticed. Pin memory after it is registered, and
  // end that before the registration ends. A child of fork() has pages of its own where it writes;
  // elsewhere it sees what the parent writes later. Free the memory after the registration ends;
  // what is freed before is no longer lent, nor is private memory that is mapped there next.
  [[nodiscard]] Registration register_memory(void* data, size_t bytes);

  // Library-allocated memory of this thread's current GPU, of any contents at first, for windows of
  // which all that the GPUs have can be used (multicast by NVSwitch, too).
  template <typename T>
  static Memory<T> allocate_on_device(size_t count) {
    static_assert(std::is_trivially_copyable_v<T>);
    const std::shared_ptr<void> bytes = device_bytes(count, sizeof(T));
    return Memory<T>(bytes, static_cast<T*>(bytes.get()));
  }

  // Collective. Makes a GPU's memory, as much on every rank, a window as long as the registration
  // lives: kernels of the other ranks read and write it where it lies. A call whose buffers are in
  // windows then copies nothing aside; each must be at the same place of the same window on every
  // rank (in place: where the rank's own block belongs). Empty, and no loss, where calls do not go
  // by kernels. No call may be under way when a registration ends, which all ranks let end between
  // the same calls; graphs that were captured with it must not be launched any more. Throws
  // Error(unsupported) where the memory cannot be shared.
  [[nodiscard]] Registration register_window(void* data, size_t bytes);

  // The name of the algorithm that such a call takes; empty where it needs none. Collective.
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
  // Returns what has come (in a group nothing, which is told by group_end_async()'s Work).
  MessageInfo recv(Buffer buffer, int from, const CallOptions& options = {}) {
    return receive(Request::recv(buffer, from), options);
  }
  Work recv_async(Buffer buffer, int from, const CallOptions& options = {}) {
    return start(Request::recv(buffer, from), options);
  }
  // buffer[i] = buffer[i] op what is received (Request::recv_reduce).
  MessageInfo recv_reduce(Buffer buffer, int from, Reduction op = ReduceOp::sum,
                          const CallOptions& options = {}) {
    return receive(Request::recv_reduce(buffer, from, std::move(op)), options);
  }
  Work recv_reduce_async(Buffer buffer, int from, Reduction op = ReduceOp::sum,
                         const CallOptions& options = {}) {
    return start(Request::recv_reduce(buffer, from, std::move(op)), options);
  }
  // The message that the next receive of this kind would take; nothing where none is there yet.
  std::optional<MessageInfo> probe(int from = kAnySource, int tag = kAnyTag);
  // Blocks until it is there.
  MessageInfo await_message(int from = kAnySource, int tag = kAnyTag);

  // In place.
  void all_reduce(Buffer values, const Reduction& op = ReduceOp::sum) {
    all_reduce(values, values, op);
  }
  void broadcast(Buffer values, int root) { broadcast(values, values, root); }

  // Calls `hook` again and again while a thread waits for a call of this process's and nothing
  // moves, at least every millisecond: for programs whose peers depend on more than Tutti. It must
  // not wait for long, nor throw. Of all communicators of the job; empty takes it back.
  void while_waiting(std::function<void()> hook);

  // Aborts the communicator on every rank with Error(aborted, reason).
  void abort(const std::string& reason);
  // Why it was aborted, by whomever; nothing while it works.
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
