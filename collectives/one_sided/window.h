// One-sided access to other ranks' memory: a rank reads, writes and updates a window of another
// one, which makes no call for it.
//
//   std::vector<float> table(n);
//   tutti::Window window(world, std::as_writable_bytes(std::span(table)));   // collective
//   window.put(as_const(buffer), /*rank=*/2, /*offset=*/64);
//   window.accumulate({ones, 4, DType::f32}, 2, 128, ReduceOp::sum);
//   window.flush(2);                 // rank 2's memory has both now
//   window.signal(2, /*slot=*/0);    // after them: rank 2 may wait_signal(0, 1)
//
// Memory that the ranks of a host share (allocate(), or memory from Communicator::allocate() and
// register_memory()) is read and written in place, without any help of its owner. All else are
// messages, over every provider. The owner serves them whenever one of its threads is inside a call
// or a wait of the job; with TUTTI_PROGRESS_THREAD=1 also while all of them compute.
//
// Order and completion:
//   - Requests of one rank to another are served in the order of its calls.
//   - put() and accumulate() return once the source may be written again (local completion). Short
//     ones that travel go together in one message, at the latest with the next other call of this
//     rank to that one, or when it waits for a signal.
//   - flush() returns once the owner's memory has all that this rank sent before it (remote
//     completion).
//   - accumulate() and compare_and_swap() are atomic for each segment of kSegment bytes against
//     each other, the owner's own among them. put() and get() are not atomic, as in MPI (MPI 4.1,
//     section 12.7): what others write or combine meanwhile may be seen in part.
//   - The owner reads what others wrote after fence(), or after wait_signal() of a signal that
//     followed it. Its plain stores are seen by requests that are served after its next call.
//   - At most 64 requests of a rank are under way as messages: further calls wait.
//
// Errors: a failure of the window's communicator (a dead rank: Error(rank_died)) fails every call
// on it, and ends the service. With Members::may_die that is so for the calls to that rank alone:
// they fail by its name, all others go on. A part that its owner has ended fails the calls to it.
// Error(invalid_argument) for ranks, ranges, types and operators that do not fit; nothing is sent
// then.
//
// Threads: any thread may call, also several at once.
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

// How the other members fare when one dies.
enum class Members : uint8_t {
  end_together,  // it fails on all ranks
  may_die,       // calls to the dead rank fail; costs two communicators for each pair of ranks
};

class Window {
 public:
  static constexpr uint64_t kSegment = 32 << 10;  // bytes of a request that travels in one message
  static constexpr int kSignals = 64;             // slots of a rank

  // Collective among all ranks of `world`. `memory` is this rank's part, of any size; it is the
  // caller's, and stays alive until free() has returned, or the window is destroyed. The ranks of
  // the window are those of `world`.
  Window(Communicator world, std::span<std::byte> memory, Members members = Members::end_together);
  // The same, with memory of the window's own: zeroed, and shared with the ranks of the host.
  static Window allocate(Communicator world, uint64_t bytes,
                         Members members = Members::end_together);
  // Ends the window on this rank alone: calls of other ranks to it fail from then on. Waits for
  // those that are inside its memory.
  ~Window();
  Window(Window&&) noexcept;
  Window& operator=(Window&&) noexcept;

  int rank() const;
  int size() const;
  uint64_t bytes_of(int rank) const;    // of a rank's part
  std::span<std::byte> memory() const;  // this rank's part
  // True if calls to the rank read and write its memory in place, without messages.
  bool is_shared(int rank) const;
  // A rank's part where this rank has it in memory, for accesses that have no call here; empty
  // where the rank's memory is not shared. Valid until the window ends.
  std::span<std::byte> mapped(int rank) const;
  // As long as it lives, no other thread of any rank combines or swaps in the rank's part: for
  // updates in mapped() memory, whose owner must not end the window meanwhile. Throws
  // Error(unsupported) where that memory is not mapped, and what accumulate() throws of dead ranks.
  class Exclusion {
   public:
    Exclusion(Window& window, int rank);
    ~Exclusion();
    Exclusion(const Exclusion&) = delete;
    Exclusion& operator=(const Exclusion&) = delete;

   private:
    const one_sided::SharedPart& part_;
  };

  // Writes `from` at a byte offset of a rank's part.
  void put(ConstBuffer from, int rank, uint64_t offset);
  // Reads from there; blocks until the data are here.
  void get(Buffer into, int rank, uint64_t offset);
  // window[i] = window[i] op from[i], for all operators but avg, premul_sum and user.
  void accumulate(ConstBuffer from, int rank, uint64_t offset, ReduceOp op);
  // Writes `desired` if the integer at the offset equals `expected`; returns what was there. `type`
  // is i32, u32, i64 or u64. Blocks.
  uint64_t compare_and_swap(DType type, uint64_t expected, uint64_t desired, int rank,
                            uint64_t offset);

  // Adds `count` to a rank's counter `slot`, after all that this rank sent to it before.
  void signal(int rank, int slot, uint64_t count = 1);
  // Blocks until this rank's counter is at least `count`, and takes so much from it.
  void wait_signal(int slot, uint64_t count = 1);

  void flush(int rank);
  // flush() of all ranks that are left.
  void flush_all();
  // Collective among the ranks that are left: flush_all() on every one, and a barrier.
  void fence();
  // Collective: a fence, and the end of the window.
  void free();
  // Fails all calls on the window, of every rank, with Error(aborted, reason).
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
