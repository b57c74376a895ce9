// One-sided access to other ranks' memory: a rank reads, writes and updates another rank's window
// without a matching call there.
//
//   std::vector<float> table(n);
//   tutti::Window window(world, std::as_writable_bytes(std::span(table)));   // collective
//   window.put(as_const(buffer), /*rank=*/2, /*offset=*/64);
//   window.accumulate({ones, 4, DType::f32}, 2, 128, ReduceOp::sum);
//   window.flush(2);                 // rank 2's memory has both now
//   window.signal(2, /*slot=*/0);    // rank 2 waits for it: wait_signal(0)
//
// Memory shared by the ranks of a host (allocate(), or memory from Communicator::allocate() and
// register_memory()) is accessed in place without help from its owner. Over UCX and libfabric,
// put() and get() of memory from Window::allocate() use the network cards' remote memory access
// (TUTTI_RMA), also without help. All other accesses are messages, which any transport carries. The
// owner serves them whenever one of its threads is inside a call or a wait of the job, and with
// TUTTI_PROGRESS_THREAD=1 also while all its threads compute.
//
// Order and completion:
//   - Requests of one rank to another are served in the order of its calls.
//   - put() and accumulate() return once the source may be overwritten (local completion). Short
//     requests sent as messages are batched. A batch is sent at the latest with this rank's next
//     unbatched request to the same rank, or when this rank waits for a signal.
//   - flush() returns once all earlier requests of this rank have taken effect in the owner's
//     memory (remote completion).
//   - accumulate() and compare_and_swap() are atomic per segment of kSegment bytes with respect to
//     each other, including the owner's own. put() and get() are not atomic, as in MPI (MPI 4.1,
//     section 12.7): a concurrent access may see a part of a write or update.
//   - The owner sees other ranks' writes after fence(), or after wait_signal() for a signal that
//     followed them. The owner's plain stores are visible to requests that are
//     served after its next call.
//   - At most 64 messages of a rank that carry requests are in flight, or with Members::may_die at
//     most 64 to each other rank. Further calls block.
//
// Errors: a failure of the window's communicator (a dead rank: Error(rank_died)) fails every call
// on the window and stops its service. With Members::may_die only calls to the dead rank fail, with
// an error that names it. Once an owner has ended its part, calls to that part fail. put() and
// get() by remote memory access may still succeed, without effect, until the owner leaves the job,
// because the part's memory is kept until then. Calls with an invalid rank, range, type or operator
// throw Error(invalid_argument) and send nothing.
//
// Threads: any thread may call; several may call concurrently.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/buffer.h"
#include "base/reduce_op.h"
#include "collectives/communicator.h"

namespace tutti {

namespace one_sided {
struct Header;     // defined in requests.h
class SharedPart;  // defined in shared_part.h
}  // namespace one_sided

// Effect of a member's death on the others.
enum class Members : uint8_t {
  end_together,  // the window fails on all ranks
  may_die,       // calls to the dead rank fail; costs a communicator per pair of ranks
};

class Window {
 public:
  static constexpr uint64_t kSegment = 32 << 10;  // bytes of a request sent in one message
  static constexpr int kSignals = 64;             // number of slots per rank

  // Creates the window. Collective among all ranks of `world`, whose rank numbers the window uses.
  // `memory` is this rank's part, of any size. The caller owns the memory and keeps it alive until
  // free() has returned or the window is destroyed.
  Window(Communicator world, std::span<std::byte> memory, Members members = Members::end_together);
  // Creates a window with memory that it owns, `bytes` long on this rank, zeroed, and shared with
  // the ranks of the host. Collective.
  static Window allocate(Communicator world, uint64_t bytes,
                         Members members = Members::end_together);
  // Ends the window on this rank only: later calls of other ranks to this rank's part fail. Blocks
  // until accesses inside its memory have ended.
  ~Window();
  Window(Window&&) noexcept;
  Window& operator=(Window&&) noexcept;

  int rank() const;
  int size() const;
  uint64_t bytes_of(int rank) const;    // size of a rank's part
  std::span<std::byte> memory() const;  // this rank's part
  // Returns true if calls to `rank` access its memory in place, without messages.
  bool is_shared(int rank) const;
  // Returns a rank's part as mapped by this rank, for direct accesses; empty if the rank's memory
  // is not shared. Valid until the window ends.
  std::span<std::byte> mapped(int rank) const;
  // RAII lock for updates of mapped() memory: while it lives, accumulate() and compare_and_swap()
  // on the rank's part wait, whichever rank calls them (this thread must not). put() and get() do
  // not wait. The owner must not end the window meanwhile. Throws Error(unsupported) if the memory
  // is not mapped. For a dead rank it throws what accumulate() throws.
  class Exclusion {
   public:
    Exclusion(Window& window, int rank);
    ~Exclusion();
    Exclusion(const Exclusion&) = delete;
    Exclusion& operator=(const Exclusion&) = delete;

   private:
    const one_sided::SharedPart& part_;
  };

  // Writes `from` to byte offset `offset` of the part of `rank`. Returns once `from` may be
  // overwritten.
  void put(ConstBuffer from, int rank, uint64_t offset);
  // Reads from byte offset `offset` of the part of `rank`; blocks until the data have arrived.
  void get(Buffer into, int rank, uint64_t offset);
  // Computes window[i] = window[i] op from[i], where window[0] is at byte offset `offset` of the
  // part of `rank`. `op` is any operator except avg, premul_sum and user.
  void accumulate(ConstBuffer from, int rank, uint64_t offset, ReduceOp op);
  // Writes `desired` if the integer at the offset equals `expected`; returns the old value. `type`
  // is i32, u32, i64 or u64. Blocks.
  uint64_t compare_and_swap(DType type, uint64_t expected, uint64_t desired, int rank,
                            uint64_t offset);

  // Adds `count` to counter `slot` of `rank` after all earlier requests of this rank to `rank` have
  // taken effect.
  void signal(int rank, int slot, uint64_t count = 1);
  // Blocks until counter `slot` of this rank is at least `count`, then subtracts `count`.
  void wait_signal(int slot, uint64_t count = 1);

  // Blocks until all earlier requests of this rank to `rank` have taken effect there.
  void flush(int rank);
  // Flushes the requests to all surviving ranks.
  void flush_all();
  // Flushes this rank's requests to all surviving ranks, then waits until all surviving ranks have
  // flushed theirs. Collective among the surviving ranks.
  void fence();
  // Runs a fence, then ends the window on all ranks. Collective.
  void free();
  // Fails all calls on the window, on every rank, with Error(aborted, reason).
  void abort(const std::string& reason);

 private:
  class State;
  static void accumulate_segment(State& state, int rank, const one_sided::Header& header,
                                 const void* data);
  explicit Window(std::shared_ptr<State> state);
  State& state() const;
  std::shared_ptr<State> state_;
};

}  // namespace tutti
