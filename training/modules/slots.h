// Stores the state that a unit saves from forward to backward, for each micro-batch in flight.
#pragma once

#include <cstddef>
#include <deque>

namespace tutti::training {

// One element per micro-batch in flight. Addresses are stable, because deferred weight gradients
// refer to them.
template <typename Saved>
class Slots {
 public:
  Saved& operator[](int slot) {
    const auto index = static_cast<size_t>(slot);
    while (saved_.size() <= index) saved_.emplace_back();
    return saved_[index];
  }

 private:
  std::deque<Saved> saved_;
};

}  // namespace tutti::training
