// Buffers that come and go; of each size as many as were ever in use at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "collectives/communicator.h"

namespace tutti::training {

class BufferPool {
 public:
  explicit BufferPool(Communicator communicator) : communicator_(std::move(communicator)) {}
  // The contents are unspecified.
  std::byte* acquire(size_t bytes);
  void release(std::byte* buffer, size_t bytes) { free_[bytes].push_back(buffer); }
  int64_t bytes() const { return bytes_; }

 private:
  Communicator communicator_;
  int64_t bytes_ = 0;
  std::vector<Memory<std::byte>> all_;
  std::map<size_t, std::vector<std::byte*>> free_;  // by size
};

}  // namespace tutti::training
