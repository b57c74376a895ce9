// A rank's part of a window as the ranks of its host have it: the memory itself, and beside it, in
// memory that they share too, what they agree by.
//
//   control   | lock, closed | signals | entry of rank 0 | entry of rank 1 | ...
//   data      | the part ...
//
// A rank that accesses another one's part sets its own entry first, and then checks that the part
// is not closed; the owner closes the part, and then waits until all entries are clear. So no
// access is under way in memory that its owner has freed. The control itself stays until no rank
// has it mapped. Entries cost no atomic operation where one thread alone uses the window
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

inline constexpr int kSignals = 64;  // counters of a rank

// In shared memory, zero at first.
struct PartControl {
  alignas(64) std::atomic<uint32_t> lock;  // held while a rank combines: 1 + its number
  alignas(64) std::atomic<uint32_t> closed;
  std::atomic<uint32_t> sleepers;  // threads of the owner that wait for a signal, asleep
  std::atomic<uint32_t> users;     // other ranks that have it mapped
  alignas(64) std::array<std::atomic<uint64_t>, kSignals> signals;
  struct alignas(64) Entry {
    std::atomic<uint32_t> of_first;   // of the first thread to come
    std::atomic<uint32_t> of_others;  // counts the rest
  };

  Entry& entry(int rank) { return reinterpret_cast<Entry*>(this + 1)[rank]; }
  static size_t bytes(int ranks) {
    return sizeof(PartControl) + static_cast<size_t>(ranks) * sizeof(Entry);
  }
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

// Where a part is, as ranks tell each other.
struct PartPlace {
  uint64_t bytes = 0;
  uint64_t data = kNone;  // Paths::place_of()
  uint64_t control = kNone;
  uint64_t light_fences = 0;  // 1: heavy fences reach this rank
  static constexpr uint64_t kNone = ~uint64_t{0};

  bool is_shared() const { return data != kNone && control != kNone; }
};

// The part of one rank, to another or to itself.
class SharedPart {
 public:
  SharedPart() = default;  // not shared
  // Rank `own`'s view of it. Not shared where it cannot be mapped.
  SharedPart(Paths& paths, const PartPlace& place, int ranks, int own, bool light_fences);
  // The owner's own.
  SharedPart(std::span<std::byte> data, const std::shared_ptr<void>& control, int own,
             bool light_fences);

  explicit operator bool() const { return control_ != nullptr; }
  std::byte* data() const { return data_.get(); }
  PartControl& control() const { return *control_; }

  bool is_closed() const {
    return control_->closed.load(light_fences_ ? std::memory_order_acquire
                                               : std::memory_order_seq_cst) != 0;
  }
  enum class Entered : uint8_t { no, first, other };
  // `no` where the part is closed; else leave() follows.
  Entered enter() const {
    PartControl::Entry& entry = *entry_;
    const bool is_first = is_first_thread();
    if (is_first) {
      entry.of_first.store(1,
                           light_fences_ ? std::memory_order_relaxed : std::memory_order_seq_cst);
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

  // The lock is held while a rank combines. While another rank holds it, check(that rank) is called
  // again and again: it returns true if that rank has died, whose lock this one then takes, and
  // throws if the window has failed.
  template <typename Check>
  void lock(const Check& check) const {
    if (!try_lock()) wait_for_lock(check);
  }
  void unlock() const { control_->lock.store(0, std::memory_order_release); }

  // By the owner: nobody enters from then on. Returns when nobody is inside; false where
  // is_over(rank) says of some that they will not come out: then the memory must stay.
  bool close(int ranks, const std::function<bool(int rank)>& is_over) const;
  // Takes over what the owner lets go of, and frees it once no other rank has it mapped: looked at
  // whenever a window ends.
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
  PartControl::Entry* entry_ = nullptr;  // this rank's
  // The thread that has Entry::of_first.
  std::shared_ptr<std::atomic<const void*>> first_;
  int own_ = 0;
  bool light_fences_ = false;
};

// Tells threads apart.
inline const void* this_thread() { return __builtin_thread_pointer(); }

inline bool SharedPart::is_first_thread() const {
  const void* const first = first_->load(std::memory_order_relaxed);
  if (first == this_thread()) return true;
  if (first != nullptr) return false;
  const void* nobody = nullptr;
  return first_->compare_exchange_strong(nobody, this_thread());
}

}  // namespace tutti::one_sided
