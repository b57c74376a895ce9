#include "training/core/arena.h"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>

#include "base/error.h"
#include "base/host_memory.h"
#include "base/text.h"

namespace tutti::training {
namespace {

constexpr size_t kAlignment = 64;
// Size of the first chunk, which suffices for small models. Each later chunk doubles the reserved
// memory, so that few chunks are needed.
constexpr size_t kFirstChunk = size_t{4} << 20;
// Size of the first chunk if unused addresses cost nothing (addresses_are_free()). A thousand such
// arenas still fit into the address space.
constexpr size_t kFreeChunk = size_t{64} << 30;

// Returns true if pages that are never touched cost this process nothing: its address space has no
// limit, and the system does not count reservations as memory (it does if vm.overcommit_memory is
// 2).
bool addresses_are_free() {
  rlimit addresses{};
  if (::getrlimit(RLIMIT_AS, &addresses) != 0 || addresses.rlim_cur != RLIM_INFINITY) return false;
  int overcommit = 2;
  std::ifstream("/proc/sys/vm/overcommit_memory") >> overcommit;
  return overcommit != 2;
}

}  // namespace

size_t usable_memory() {
  const uint64_t machine = host_memory() > 0 ? host_memory() : uint64_t{1} << 60;
  return static_cast<size_t>(std::min(machine, container_memory().value_or(machine)));
}

// Advances to the next chunk with enough room, or allocates one.
void Arena::begin_chunk(size_t bytes) {
  while (current_ + 1 < chunks_.size()) {
    chunks_[++current_].used_before = used_;
    if (bytes <= chunks_[current_].size) return;
  }
  const bool is_free = chunks_.empty() && backend_ == nullptr && addresses_are_free();
  const size_t least = std::min(is_free ? kFreeChunk : kFirstChunk, limit_);
  const size_t size = std::max({bytes, std::min(reserved_, limit_), least});
  chunks_.push_back({allocate(backend_, size), size, used_});
  current_ = chunks_.size() - 1;
  reserved_ += size;
}

Tensor Arena::take(DType dtype, int64_t rows, int64_t cols) {
  alignas(kAlignment) static std::byte nothing[kAlignment];
  const Tensor empty = tensor_at(nothing, dtype, rows, cols, backend_);
  const size_t wanted = empty.bytes();
  const size_t bytes = (wanted + kAlignment - 1) / kAlignment * kAlignment;
  if (bytes == 0) return empty;
  if (bytes > limit_ - used_) {
    throw Error(ErrorCode::invalid_argument,
                cat("the activations of one micro-batch exceed ", limit_ >> 20, " MiB"),
                {.remedy = "use a smaller micro-batch or activation checkpointing"});
  }
  const auto fits = [&] {
    const Chunk& chunk = chunks_[current_];
    return bytes <= chunk.size - (used_ - chunk.used_before);
  };
  if (chunks_.empty() || !fits()) begin_chunk(bytes);
  const Chunk& chunk = chunks_[current_];
  std::byte* const start = chunk.memory.get() + (used_ - chunk.used_before);
  used_ += bytes;
  high_water_ = std::max(high_water_, used_);
  return tensor_at(start, dtype, rows, cols, backend_);
}

void Arena::release(size_t mark) {
  used_ = mark;
  while (current_ > 0 && mark <= chunks_[current_].used_before) --current_;
}

}  // namespace tutti::training
