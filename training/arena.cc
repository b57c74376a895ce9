#include "training/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/error.h"
#include "base/text.h"

namespace tutti::training {
namespace {

constexpr size_t kAlignment = 64;

}  // namespace

size_t physical_memory() {
  return static_cast<size_t>(::sysconf(_SC_PHYS_PAGES)) *
         static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

Arena::Arena(size_t bytes) : size_(bytes) {
  void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) {
    throw system_error(cat("cannot reserve ", bytes >> 20, " MiB of addresses for activations"),
                       errno, {.remedy = "raise the limit on virtual memory (ulimit -v)"});
  }
  ::madvise(address, bytes, MADV_HUGEPAGE);  // fewer page faults; no loss where it is refused
  base_ = static_cast<std::byte*>(address);
}

Arena::~Arena() { ::munmap(base_, size_); }

Tensor Arena::take(DType dtype, int64_t rows, int64_t cols) {
  const Tensor tensor = tensor_at(base_ + used_, dtype, rows, cols);
  const size_t bytes = (tensor.bytes() + kAlignment - 1) / kAlignment * kAlignment;
  if (bytes > size_ - used_) {
    throw Error(ErrorCode::invalid_argument,
                cat("the activations of one micro-batch take more than ", size_ >> 20, " MiB"),
                {.remedy = "take a smaller micro-batch or checkpoint activations"});
  }
  used_ += bytes;
  high_water_ = std::max(high_water_, used_);
  return tensor;
}

}  // namespace tutti::training
