// Buffers that come and go; of each size as many as were ever in use at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "collectives/communicator.h"
#include "training/core/backend.h"

namespace tutti::training {

// Zeroed memory that ranks tell each other the contents of: the backend's, or (null) the host's
// from the communicator, which the other ranks of the host read where it lies.
Memory<std::byte> allocate_shared(Communicator& communicator, const Backend* backend, size_t bytes);

class BufferPool {
 public:
  // In the backend's memory; null: in the host's.
  explicit BufferPool(Communicator communicator, const Backend* backend = nullptr)
      : communicator_(std::move(communicator)), backend_(backend) {}
  // The contents are unspecified.
  std::byte* acquire(size_t bytes);
  void release(std::byte* buffer, size_t bytes) { free_[bytes].push_back(buffer); }
  int64_t bytes() const { return bytes_; }

 private:
  Communicator communicator_;
  const Backend* backend_;
  int64_t bytes_ = 0;
  std::vector<Memory<std::byte>> all_;
  std::map<size_t, std::vector<std::byte*>> free_;  // by size
};

}  // namespace tutti::training
