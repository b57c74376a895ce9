#include "training/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>

#include "base/error.h"
#include "base/text.h"

namespace tutti::training {
namespace {

constexpr size_t kAlignment = 64;
// Chunks double what is reserved, so there are few of them; the first holds small models'.
constexpr size_t kFirstChunk = size_t{4} << 20;

}  // namespace

size_t usable_memory(const std::string& cgroups) {
  size_t bytes =
      static_cast<size_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  for (const char* file : {"/memory.max", "/memory/memory.limit_in_bytes"}) {
    size_t limit = 0;  // "max": none
    if (std::ifstream(cgroups + file) >> limit && limit > 0) bytes = std::min(bytes, limit);
  }
  return bytes;
}

Arena::~Arena() {
  for (const Chunk& chunk : chunks_) ::munmap(chunk.memory, chunk.size);
}

// The next chunk in which there is room, be it a new one.
void Arena::begin_chunk(size_t bytes) {
  while (current_ + 1 < chunks_.size()) {
    chunks_[++current_].used_before = used_;
    if (bytes <= chunks_[current_].size) return;
  }
  const size_t size = std::max({bytes, std::min(reserved_, limit_), std::min(kFirstChunk, limit_)});
  void* address = ::mmap(nullptr, size, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) {
    throw system_error(
        cat("cannot reserve ", size >> 20, " MiB of addresses for activations"), errno,
        {.remedy = "raise the limit on virtual memory (ulimit -v), or take a smaller "
                   "micro-batch"});
  }
  ::madvise(address, size, MADV_HUGEPAGE);  // fewer page faults; no loss where it is refused
  chunks_.push_back({static_cast<std::byte*>(address), size, used_});
  current_ = chunks_.size() - 1;
  reserved_ += size;
}

Tensor Arena::take(DType dtype, int64_t rows, int64_t cols) {
  alignas(kAlignment) static std::byte nothing[kAlignment];
  const size_t wanted = tensor_at(nothing, dtype, rows, cols).bytes();
  const size_t bytes = (wanted + kAlignment - 1) / kAlignment * kAlignment;
  if (bytes == 0) return tensor_at(nothing, dtype, rows, cols);
  if (bytes > limit_ - used_) {
    throw Error(ErrorCode::invalid_argument,
                cat("the activations of one micro-batch take more than ", limit_ >> 20, " MiB"),
                {.remedy = "take a smaller micro-batch or checkpoint activations"});
  }
  const auto fits = [&] {
    const Chunk& chunk = chunks_[current_];
    return bytes <= chunk.size - (used_ - chunk.used_before);
  };
  if (chunks_.empty() || !fits()) begin_chunk(bytes);
  const Chunk& chunk = chunks_[current_];
  const Tensor tensor = tensor_at(chunk.memory + (used_ - chunk.used_before), dtype, rows, cols);
  used_ += bytes;
  high_water_ = std::max(high_water_, used_);
  return tensor;
}

void Arena::release(size_t mark) {
  used_ = mark;
  while (current_ > 0 && mark <= chunks_[current_].used_before) --current_;
}

}  // namespace tutti::training
