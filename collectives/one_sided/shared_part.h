// A rank's part of a window as the ranks of its host access it: the memory, and control words in
// shared memory by which these ranks synchronise.
//
//   control   | lock, closed | signals | entry of rank 0 | entry of rank 1 | ...
//   data      | the part ...
//
// A rank that accesses another rank's part first sets its own entry and then checks that the part
// is not closed. The owner closes the part and then waits until all entries are clear, so no access
// is in flight when it frees the memory. The control block stays mapped until no rank uses it.
// Entries need no atomic read-modify-write while a single thread uses the window
// (base/asymmetric_fence.h).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "base/asymmetric_fence.h"
#include "collectives/communicator.h"

namespace tutti::one_sided {

inline constexpr int kSignals = 64;  // number of counters per rank

// Control words of a part in shared memory, initially zero.
struct PartControl {
  // 1 + rank of the holder during a combining operation; 0: free.
  alignas(64) std::atomic<uint32_t> lock;
  alignas(64) std::atomic<uint32_t> closed;
  std::atomic<uint32_t> sleepers;  // owner's threads that sleep until a signal arrives
  std::atomic<uint32_t> users;     // number of other ranks that have the part mapped
  alignas(64) std::array<std::atomic<uint64_t>, kSignals> signals;
  struct alignas(64) Entry {
    std::atomic<uint32_t> of_first;   // set while the rank's first thread is inside
    std::atomic<uint32_t> of_others;  // number of the rank's other threads inside
  };

  Entry& entry(int rank) { return reinterpret_cast<Entry*>(this + 1)[rank]; }
  static size_t bytes(int ranks) {
    return sizeof(PartControl) + static_cast<size_t>(ranks) * sizeof(Entry);
  }
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// Location of a part, which the ranks exchange.
struct PartPlace {
  uint64_t bytes = 0;
  uint64_t data = kNone;  // result of Paths::place_of()
  uint64_t control = kNone;
  uint64_t light_fences = 0;  // 1: heavy fences of other ranks reach this rank
  static constexpr uint64_t kNone = ~uint64_t{0};

  bool is_shared() const { return data != kNone && control != kNone; }
};

// A rank's view of a part, which is its own or another rank's.
class SharedPart {
 public:
  SharedPart() = default;  // makes a view that is not shared
  // Creates rank `own`'s view of another rank's part. It is not shared if the part cannot be
  // mapped.
  SharedPart(Paths& paths, const PartPlace& place, int ranks, int own, bool light_fences);
  // Creates the owner's view.
  SharedPart(std::span<std::byte> data, const std::shared_ptr<void>& control, int own,
             bool light_fences);

  explicit operator bool() const { return control_ != nullptr; }
  std::byte* data() const { return data_.get(); }
  PartControl& control() const { return *control_; }

  bool is_closed() const { return control_->closed.load(std::memory_order_seq_cst) != 0; }
  enum class Entered : uint8_t { no, first, other };
  // Begins an access. Returns `no` if the part is closed; otherwise the caller must call leave().
  Entered enter() const {
    PartControl::Entry& entry = *entry_;
    const bool is_first = is_first_thread();
    if (is_first) {
      // There are two stores because the compiler uses the strongest memory order if the order is
      // not a constant.
      if (light_fences_) [[likely]] {
        entry.of_first.store(1, std::memory_order_relaxed);
      } else {
        entry.of_first.store(1, std::memory_order_seq_cst);
      }
      light_fence();
    } else {
      entry.of_others.fetch_add(1, std::memory_order_seq_cst);
    }
    const Entered entered = is_first ? Entered::first : Entered::other;
    if (!is_closed()) [[likely]]
      return entered;
    leave(entered);
    return Entered::no;
  }
  void leave(Entered entered) const {
    if (entered == Entered::first) {
      entry_->of_first.store(0, std::memory_order_release);
    } else {
      entry_->of_others.fetch_sub(1, std::memory_order_release);
    }
  }

  // Acquires the lock of combining operations. While another rank holds it, check(holder) is called
  // repeatedly. It returns true if the holder has died; then this rank takes over the lock. It
  // throws if the window has failed.
  template <typename Check>
  void lock(const Check& check) const {
    if (!try_lock()) wait_for_lock(check);
  }
  void unlock() const { control_->lock.store(0, std::memory_order_release); }

  // Closes the part; called by the owner. No rank can enter afterwards. Blocks until no rank is
  // inside, then returns true. Returns false if is_over(rank) reports that a rank inside will never
  // leave; the memory must then not be freed.
  bool close(int ranks, const std::function<bool(int rank)>& is_over) const;
  // Takes ownership of the part's memory and frees it once no other rank has it mapped. Parts that
  // still wait to be freed are checked whenever a window ends.
  static void free_when_unused(const SharedPart& part, const std::shared_ptr<void>& memory);

 private:
  bool is_first_thread() const;
  bool try_lock() const {
    uint32_t nobody = 0;
    return control_->lock.compare_exchange_strong(nobody, static_cast<uint32_t>(own_) + 1,
                                                  std::memory_order_acquire);
  }
  void wait_for_lock(const std::function<bool(int holder)>& check) const;

  std::shared_ptr<std::byte> data_;
  std::shared_ptr<PartControl> control_;
  PartControl::Entry* entry_ = nullptr;  // entry of this rank
  // The thread that uses Entry::of_first, that is, the first one that entered.
  std::shared_ptr<std::atomic<const void*>> first_;
  int own_ = 0;
  bool light_fences_ = false;
};

// Returns a pointer that identifies the calling thread.
inline const void* this_thread() { return __builtin_thread_pointer(); }

inline bool SharedPart::is_first_thread() const {
  const void* const first = first_->load(std::memory_order_relaxed);
  if (first == this_thread()) return true;
  if (first != nullptr) return false;
  const void* nobody = nullptr;
  return first_->compare_exchange_strong(nobody, this_thread());
}

}  // namespace tutti::one_sided
