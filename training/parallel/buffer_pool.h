// A pool of temporary buffers. For each size it keeps the maximum number of buffers that were in
// use at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "collectives/communicator.h"
#include "training/core/backend.h"

namespace tutti::training {

// Allocates zeroed memory for messages. It is the backend's memory or, if `backend` is null, host
// memory of the communicator, which the other ranks of the host can read directly.
Memory<std::byte> allocate_shared(Communicator& communicator, const Backend* backend, size_t bytes);

class BufferPool {
 public:
  // Creates a pool that allocates the backend's memory, or host memory if `backend` is null.
  explicit BufferPool(Communicator communicator, const Backend* backend = nullptr)
      : communicator_(std::move(communicator)), backend_(backend) {}
  // Returns a buffer with unspecified contents.
  std::byte* acquire(size_t bytes);
  void release(std::byte* buffer, size_t bytes) { free_[bytes].push_back(buffer); }
  int64_t bytes() const { return bytes_; }

 private:
  Communicator communicator_;
  const Backend* backend_;
  int64_t bytes_ = 0;
  std::vector<Memory<std::byte>> all_;
  std::map<size_t, std::vector<std::byte*>> free_;  // free buffers by size
};

}  // namespace tutti::training
