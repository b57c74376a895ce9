// The operations of a communicator. An operation is reused once its call has ended and no Work
// refers to it, so that a communicator in steady use allocates nothing per call.
//
// The pool is not notified when a Work is dropped, so it checks: first the operation used last,
// which blocking calls find free, then the candidates of the last sweep over all operations. If a
// sweep finds fewer free operations than half of the pool, the missing number is allocated before
// the next sweep. A sweep over n operations is thus amortized over at least n / 2 calls, and the
// pool stays within about twice the largest number of operations in use at a time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/runtime/calls/operation.h"

namespace tutti::internal {

class OperationPool {
 public:
  // Returns a free operation. The reference is valid until the next call.
  const std::shared_ptr<Operation>& take() {
    if (last_ < all_.size() && is_free(*all_[last_], all_[last_].use_count())) {
      return reuse(all_[last_]);
    }
    return take_another();
  }

  size_t size() const { return all_.size(); }
  // Returns the number of operations examined by sweeps so far.
  uint64_t examined() const { return examined_; }

 private:
  static bool is_free(const Operation& operation, long handles) {
    return handles == 1 && operation.done.load(std::memory_order_relaxed);
  }

  static const std::shared_ptr<Operation>& reuse(const std::shared_ptr<Operation>& operation) {
    // This acquire fence pairs with the last release of a handle. `left` orders the same accesses
    // for threads that waited, because the thread sanitizer does not model fences.
    std::atomic_thread_fence(std::memory_order_acquire);
    operation->left.load(std::memory_order_acquire);
    operation->probes = false;
    return operation;
  }

  [[gnu::noinline]] const std::shared_ptr<Operation>& take_another() {
    if (candidates_.empty() && to_make_ == 0) sweep();
    while (!candidates_.empty()) {
      last_ = candidates_.back();
      candidates_.pop_back();
      if (is_free(*all_[last_], all_[last_].use_count())) return reuse(all_[last_]);
    }
    if (to_make_ > 0) --to_make_;
    last_ = all_.size();
    return all_.emplace_back(std::make_shared<Operation>());
  }

  void sweep() {
    for (size_t i = 0; i < all_.size(); ++i) {
      if (is_free(*all_[i], all_[i].use_count())) candidates_.push_back(i);
    }
    examined_ += all_.size();
    const size_t half = all_.size() / 2;
    to_make_ = candidates_.size() < half ? half - candidates_.size() : 0;
  }

  std::vector<std::shared_ptr<Operation>> all_;
  std::vector<size_t> candidates_;  // indices of operations found free at the last sweep
  size_t to_make_ = 0;              // number of allocations before the next sweep
  size_t last_ = 0;                 // index of the operation used last
  uint64_t examined_ = 0;
};

}  // namespace tutti::internal
