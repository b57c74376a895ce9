// One-sided access to other ranks' memory: a rank reads, writes and updates another rank's window,
// without a call of that rank.
//
//   std::vector<float> table(n);
//   tutti::Window window(world, std::as_writable_bytes(std::span(table)));   // collective
//   window.put(as_const(buffer), /*rank=*/2, /*offset=*/64);
//   window.accumulate({ones, 4, DType::f32}, 2, 128, ReduceOp::sum);
//   window.flush(2);                 // rank 2's memory has both now
//   window.signal(2, /*slot=*/0);    // after them: rank 2 may wait_signal(0, 1)
//
// Memory that the ranks of a host share (allocate(), or memory from Communicator::allocate() and
// register_memory()) is read and written in place, without help of its owner. Other accesses use
// messages, over any provider. The owner serves them whenever one of its threads is inside a call
// or a wait of the job; with TUTTI_PROGRESS_THREAD=1 also while all of them compute.
//
// Order and completion:
//   - Requests of one rank to another are served in the order of its calls.
//   - put() and accumulate() return once the source may be written again (local completion). Short
//     remote ones are combined into one message, which leaves at the latest with this rank's next
//     other call to that rank, or when it waits for a signal.
//   - flush() returns once the owner's memory has all that this rank sent before it (remote
//     completion).
//   - accumulate() and compare_and_swap() are atomic for each segment of kSegment bytes against
//   each
//     other, including the owner's own calls. put() and get() are not atomic, as in MPI (MPI 4.1,
//     section 12.7): concurrent writes may be seen in part.
//   - The owner sees remote writes after fence(), or after wait_signal() of a signal that followed
//     them. Its plain stores are visible to requests served after its next call.
//   - At most 64 requests of a rank are in flight as messages: further calls block.
//
// Errors: a failure of the window's communicator (a dead rank: Error(rank_died)) fails every call
// on it, and ends the service. With Members::may_die only calls to that rank fail, naming it; all
// others continue. After its owner has ended a part, calls to it fail. Error(invalid_argument) for
// invalid ranks, ranges, types and operators; nothing is sent then.
//
// Threads: thread-safe.
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
struct Header;     // requests.h
class SharedPart;  // shared_part.h
}  // namespace one_sided

// The effect of a member's death on the others.
enum class Members : uint8_t {
  end_together,  // the window fails on all ranks
  may_die,       // only calls to the dead rank fail; costs two communicators per pair of ranks
};

class Window {
 public:
  // maximum bytes of a request that travels in one message
  static constexpr uint64_t kSegment = 32 << 10;
  static constexpr int kSignals = 64;  // signal slots per rank

  // Creates a window. Collective among all ranks of `world`, which become the ranks of the window;
  // blocks. `memory`: this rank's part, of any size, owned by the caller; it must stay allocated
  // until free() has returned, or the window is destroyed.
  Window(Communicator world, std::span<std::byte> memory, Members members = Members::end_together);
  // As above, with `bytes` bytes of memory owned by the window: zeroed, and shared with the ranks
  // of the host.
  static Window allocate(Communicator world, uint64_t bytes,
                         Members members = Members::end_together);
  // Ends the window on this rank alone: later calls of other ranks to it fail. Blocks until ongoing
  // accesses to its memory have ended.
  ~Window();
  Window(Window&&) noexcept;
  Window& operator=(Window&&) noexcept;

  int rank() const;
  int size() const;
  uint64_t bytes_of(int rank) const;    // size of a rank's part
  std::span<std::byte> memory() const;  // this rank's part
  // True if calls to the rank access its memory in place, without messages.
  bool is_shared(int rank) const;
  // Returns a rank's part if this rank has mapped it, for direct access; empty if the rank's memory
  // is not shared. Valid until the window ends.
  std::span<std::byte> mapped(int rank) const;
  // While it lives, no other thread of any rank combines or swaps in the rank's part: for updates
  // of mapped() memory. Its owner must not end the window meanwhile. Throws Error(unsupported) if
  // that memory is not mapped, and the errors of accumulate() for dead ranks.
  class Exclusion {
   public:
    Exclusion(Window& window, int rank);
    ~Exclusion();
    Exclusion(const Exclusion&) = delete;
    Exclusion& operator=(const Exclusion&) = delete;

   private:
    const one_sided::SharedPart& part_;
  };

  // Writes `from` at a byte offset of a rank's part. Returns once `from` may be reused.
  void put(ConstBuffer from, int rank, uint64_t offset);
  // Reads from a byte offset of a rank's part; blocks until the data has arrived.
  void get(Buffer into, int rank, uint64_t offset);
  // Computes window[i] = window[i] op from[i], for all operators except avg, premul_sum and user.
  // Returns once `from` may be reused.
  void accumulate(ConstBuffer from, int rank, uint64_t offset, ReduceOp op);
  // Writes `desired` if the integer at the offset equals `expected`, and returns the previous
  // value. `type` is i32, u32, i64 or u64. Blocks.
  uint64_t compare_and_swap(DType type, uint64_t expected, uint64_t desired, int rank,
                            uint64_t offset);

  // Adds `count` to a rank's counter `slot`, ordered after all earlier calls of this rank to it.
  void signal(int rank, int slot, uint64_t count = 1);
  // Blocks until this rank's counter is at least `count`, and subtracts `count`.
  void wait_signal(int slot, uint64_t count = 1);

  void flush(int rank);
  // Flushes to all ranks that are alive.
  void flush_all();
  // Collective among the ranks that are alive: flush_all() on every one, and a barrier.
  void fence();
  // Collective: a fence, then the end of the window.
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
