// Reference-counted slots of memory, each for one message.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace tutti {

class Slots {
 public:
  static constexpr size_t kBytes = 512 << 10;
  struct Slot {
    std::unique_ptr<std::byte[]> memory;
    int users = 0;
  };

  // Returns a slot with one reference.
  Slot* take() {
    if (free_.empty()) {
      slots_.push_back(std::make_unique<Slot>());
      slots_.back()->memory = std::make_unique_for_overwrite<std::byte[]>(kBytes);
      free_.push_back(slots_.back().get());
    }
    Slot* const slot = free_.back();
    free_.pop_back();
    slot->users = 1;
    return slot;
  }
  // Removes one reference.
  void drop(Slot* slot) {
    if (--slot->users == 0) free_.push_back(slot);
  }

 private:
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<Slot*> free_;
};

}  // namespace tutti
