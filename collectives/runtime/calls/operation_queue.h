// Intrusive list of operations in the order of their calls. An operation is in at most one queue;
// queues do not own operations. Adding and removing take constant time and allocate nothing.
#pragma once

#include <cstddef>
#include <utility>

#include "collectives/runtime/calls/operation.h"

namespace tutti::internal {

class OperationQueue {
 public:
  class Iterator {
   public:
    explicit Iterator(Operation* at) : at_(at) {}
    Operation* operator*() const { return at_; }
    Iterator& operator++() {
      at_ = at_->next;
      return *this;
    }
    bool operator==(const Iterator&) const = default;

   private:
    Operation* at_;
  };

  OperationQueue() = default;
  OperationQueue(OperationQueue&& other) noexcept
      : first_(std::exchange(other.first_, nullptr)),
        last_(std::exchange(other.last_, nullptr)),
        size_(std::exchange(other.size_, 0)) {}
  OperationQueue& operator=(OperationQueue&&) = delete;

  bool empty() const { return first_ == nullptr; }
  size_t size() const { return size_; }
  Operation* front() const { return first_; }
  Iterator begin() const { return Iterator(first_); }
  static Iterator end() { return Iterator(nullptr); }

  void push_back(Operation& operation) {
    operation.previous = last_;
    operation.next = nullptr;
    (last_ != nullptr ? last_->next : first_) = &operation;
    last_ = &operation;
    ++size_;
  }
  // Removes an operation, which must be in this queue.
  void erase(Operation& operation) {
    (operation.previous != nullptr ? operation.previous->next : first_) = operation.next;
    (operation.next != nullptr ? operation.next->previous : last_) = operation.previous;
    --size_;
  }
  // Removes and returns the first operation; null if the queue is empty.
  Operation* pop_front() {
    Operation* const first = first_;
    if (first != nullptr) erase(*first);
    return first;
  }

 private:
  Operation* first_ = nullptr;
  Operation* last_ = nullptr;
  size_t size_ = 0;
};

}  // namespace tutti::internal
