#include "training/parallel/buffer_pool.h"

#include "training/kernels/elementwise.h"

namespace tutti::training {

Memory<std::byte> allocate_shared(Communicator& communicator, const Backend* backend,
                                  size_t bytes) {
  if (backend == nullptr) return communicator.allocate<std::byte>(bytes);
  Memory<std::byte> memory = backend->allocate(bytes);
  zero(tensor_at(memory.get(), DType::u8, 1, static_cast<int64_t>(bytes), backend));
  return memory;
}

std::byte* BufferPool::acquire(size_t bytes) {
  std::vector<std::byte*>& free = free_[bytes];
  if (free.empty()) {
    all_.push_back(allocate_shared(communicator_, backend_, bytes));
    free.push_back(all_.back().get());
    bytes_ += static_cast<int64_t>(bytes);
  }
  std::byte* buffer = free.back();
  free.pop_back();
  return buffer;
}

}  // namespace tutti::training
