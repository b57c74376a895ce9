#include "training/parallel/buffer_pool.h"

namespace tutti::training {

std::byte* BufferPool::acquire(size_t bytes) {
  std::vector<std::byte*>& free = free_[bytes];
  if (free.empty()) {
    all_.push_back(communicator_.allocate<std::byte>(bytes));
    free.push_back(all_.back().get());
    bytes_ += static_cast<int64_t>(bytes);
  }
  std::byte* buffer = free.back();
  free.pop_back();
  return buffer;
}

}  // namespace tutti::training
