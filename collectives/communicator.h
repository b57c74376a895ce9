// The library's C++ face: collectives among the ranks of a communicator.
//
//   tutti::Communicator world = tutti::Communicator::init();
//   std::vector<float> gradients(n);
//   world.all_reduce(std::span(gradients));                       // in place, sum, blocking
//   tutti::Work work = world.all_reduce_async(in, out, ReduceOp::max);
//   work.wait();
//
// All ranks of a communicator make the same collective calls in the same order. A call that does
// not fit another rank's is an Error(mismatch) on every rank, naming both sides; a dead rank is an
// Error(rank_died) within seconds. After an error the communicator is aborted for good.
//
// Threads: calls on one communicator may come from any thread; they are ordered by who calls first,
// so concurrent collectives on one communicator need an order of the caller's making. Different
// communicators are independent.
//
// Counts are in elements. Buffers are the caller's and must stay alive and untouched until the Work
// is done (or the communicator is destroyed, which abandons what is under way). Passing the same
// pointer as input and output is in place: for all_gather `input` may be this rank's part of
// `output`, for reduce_scatter `output` may be this rank's part of `input`. Other overlaps are not
// allowed.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/buffer.h"
#include "base/error.h"
#include "base/reduce_op.h"

namespace tutti {

struct Job;

namespace internal {
// How long a handle on a call has seen no progress, and what was done about it.
struct Patience {
  int64_t since_ns = 0;
  int64_t next_look_ns = 0;
  int64_t asked_ns = 0;  // how long it had lasted when the peers were last asked
  bool said = false;
};
class CommunicatorImpl;
struct Operation;
}  // namespace internal

// A call under way. It completes, fails or is aborted, once. Copies share the call; dropping every
// copy does not cancel it. A handle belongs to one thread at a time. Deadlines and stalled peers
// are looked after while somebody tests or waits.
class Work {
 public:
  Work() = default;  // a call that is already complete

  // Makes progress; true once the call is complete. Throws the call's Error.
  bool test();
  // Returns when the call is complete. Throws the call's Error.
  void wait();
  // False when `timeout` passed first; that is no abort: the call goes on.
  bool wait_for(std::chrono::nanoseconds timeout);

 private:
  friend class Communicator;
  Work(std::shared_ptr<internal::CommunicatorImpl> comm,
       std::shared_ptr<internal::Operation> operation)
      : comm_(std::move(comm)), operation_(std::move(operation)) {}
  std::shared_ptr<internal::CommunicatorImpl> comm_;
  std::shared_ptr<internal::Operation> operation_;
  internal::Patience patience_;
};

struct CallOptions {
  std::string_view algorithm;                       // empty or "auto": the library chooses
  Stream stream;                                    // device buffers only
  std::optional<std::chrono::nanoseconds> timeout;  // instead of the setting TUTTI_TIMEOUT
};

// Memory from Communicator::allocate(). Aligned to a page; zeroed.
template <typename T>
using Memory = std::shared_ptr<T[]>;

class Communicator {
 public:
  // The world: every rank of the job, as the environment tells (tutti run, torchrun variables, or a
  // shared file; alone without any). Blocks until all ranks are there.
  static Communicator init();
  // The same for a job described by the caller (transport/bootstrap/job.h); ranks may be threads.
  static Communicator init(const Job& job);

  int rank() const;
  int size() const;
  std::string transport() const;  // "shm", "tcp", "shm+tcp", "none" (one rank)
  // "rank 3 (node7, pid 1234)"
  std::string describe(int rank) const;

  // Ranks with the same colour form a new communicator, ordered by (key, rank). Collective. A
  // negative colour joins none; the returned communicator is then empty: only valid() may be
  // called.
  Communicator split(int color, int key = 0);
  Communicator duplicate() { return split(0, rank()); }
  bool valid() const { return impl_ != nullptr; }

  // Library-allocated memory: collectives may work in place on it, without staging.
  template <typename T>
  Memory<T> allocate(size_t count) {
    static_assert(std::is_trivially_copyable_v<T>);
    const std::shared_ptr<void> bytes = allocate_bytes(count, sizeof(T));
    return Memory<T>(bytes, static_cast<T*>(bytes.get()));
  }

  // input: n elements; output: n elements, the combination over all ranks.
  Work all_reduce_async(ConstBuffer input, Buffer output, ReduceOp op = ReduceOp::sum,
                        const CallOptions& options = {});
  // input: n elements; output: size() * n, rank r's at r * n.
  Work all_gather_async(ConstBuffer input, Buffer output, const CallOptions& options = {});
  // input: size() * n elements; output: n, the combination of everybody's block rank().
  Work reduce_scatter_async(ConstBuffer input, Buffer output, ReduceOp op = ReduceOp::sum,
                            const CallOptions& options = {});
  // n elements from root's input to everybody's output. input is read at the root only.
  Work broadcast_async(ConstBuffer input, Buffer output, int root, const CallOptions& options = {});
  // input: n elements; output: n elements, written at the root only.
  Work reduce_async(ConstBuffer input, Buffer output, ReduceOp op, int root,
                    const CallOptions& options = {});
  Work barrier_async(const CallOptions& options = {});
  // Point-to-point calls between two ranks match in the order in which they are made.
  Work send_async(ConstBuffer buffer, int to, const CallOptions& options = {});
  Work recv_async(Buffer buffer, int from, const CallOptions& options = {});

  void all_reduce(ConstBuffer input, Buffer output, ReduceOp op = ReduceOp::sum,
                  const CallOptions& options = {});
  void all_gather(ConstBuffer input, Buffer output, const CallOptions& options = {});
  void reduce_scatter(ConstBuffer input, Buffer output, ReduceOp op = ReduceOp::sum,
                      const CallOptions& options = {});
  void broadcast(ConstBuffer input, Buffer output, int root, const CallOptions& options = {});
  void reduce(ConstBuffer input, Buffer output, ReduceOp op, int root,
              const CallOptions& options = {});
  void barrier(const CallOptions& options = {});
  void send(ConstBuffer buffer, int to, const CallOptions& options = {});
  void recv(Buffer buffer, int from, const CallOptions& options = {});

  template <typename T>
  void all_reduce(std::span<T> values, ReduceOp op = ReduceOp::sum) {
    const Buffer buffer = buffer_of(values);
    all_reduce(as_const(buffer), buffer, op);
  }
  template <typename T>
  void broadcast(std::span<T> values, int root) {
    const Buffer buffer = buffer_of(values);
    broadcast(as_const(buffer), buffer, root);
  }
  template <typename T>
  void send(std::span<const T> values, int to) {
    send(const_buffer_of(values), to);
  }
  template <typename T>
  void recv(std::span<T> values, int from) {
    recv(buffer_of(values), from);
  }

  // Aborts the communicator on every rank with Error(aborted, reason).
  void abort(const std::string& reason);

  Communicator() = default;
  explicit Communicator(std::shared_ptr<internal::CommunicatorImpl> impl)
      : impl_(std::move(impl)) {}

 private:
  std::shared_ptr<void> allocate_bytes(size_t count, size_t element_bytes);
  std::shared_ptr<internal::CommunicatorImpl> impl_;
};

}  // namespace tutti
