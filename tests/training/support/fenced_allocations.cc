#include "tests/training/support/fenced_allocations.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>

extern "C" void __libc_free(void* memory);  // NOLINT: the C library's

namespace tutti::training::testing {
namespace {

struct Page {
  std::byte bytes[4096];
};

// Size of the address range in pages; each page is used at most once.
constexpr size_t kPages = size_t{1} << 28;
constexpr auto kPattern = std::byte{0xa5};

struct Block {
  std::byte* start = nullptr;  // null: no block
  std::byte* end = nullptr;
  Page* first = nullptr;
  size_t pages = 0;

  bool surroundings_hold() const {
    const auto hold = [](const std::byte* from, const std::byte* to) {
      return std::all_of(from, to, [](std::byte byte) { return byte == kPattern; });
    };
    return hold(first->bytes, start) && hold(end, first[pages].bytes);
  }
};

// Code in this file must not allocate memory.
template <typename T>
T* reserve(int protection) {
  void* const start = ::mmap(nullptr, kPages * sizeof(T), protection,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (start == MAP_FAILED) std::abort();
  return static_cast<T*>(start);
}

struct Region {
  Page* const pages = reserve<Page>(PROT_NONE);
  // Indexed by the page where the block starts.
  Block* const blocks = reserve<Block>(PROT_READ | PROT_WRITE);
  std::atomic<size_t> taken = 0;
  std::atomic<int64_t> damaged = 0;  // number of freed blocks that were damaged
};

Region& region() {
  static Region all;
  return all;
}

size_t rounded_up(size_t size, size_t unit) { return (size + unit - 1) / unit * unit; }

void* allocate(size_t alignment, size_t size) {
  Region& all = region();
  const size_t unit = std::max(alignment, sizeof(Page));
  const size_t bytes = rounded_up(std::max<size_t>(size, 1), unit);
  const size_t pages = bytes / sizeof(Page);
  // Also takes the guard page, and the space that is skipped to align the first block.
  const size_t taken = all.taken.fetch_add(pages + 1 + unit / sizeof(Page));
  const size_t first = rounded_up(taken, unit / sizeof(Page));
  if (first + pages >= kPages) return nullptr;
  Page* const memory = all.pages + first;
  if (::mprotect(memory, bytes, PROT_READ | PROT_WRITE) != 0) return nullptr;
  std::memset(memory, static_cast<int>(kPattern), bytes);
  std::byte* const start = memory->bytes + bytes - rounded_up(size, alignment);
  all.blocks[(start - all.pages->bytes) / sizeof(Page)] = {start, start + size, memory, pages};
  return start;
}

// Returns false if the memory was not allocated here.
bool release(void* at) {
  Region& all = region();
  auto* const start = static_cast<std::byte*>(at);
  if (start < all.pages->bytes || start >= all.pages[kPages].bytes) return false;
  Block& block = all.blocks[(start - all.pages->bytes) / sizeof(Page)];
  if (block.start != start) std::abort();  // freed twice, or not the start of a block
  if (!block.surroundings_hold()) ++all.damaged;
  const size_t bytes = block.pages * sizeof(Page);
  ::madvise(block.first, bytes, MADV_DONTNEED);
  ::mprotect(block.first, bytes, PROT_NONE);
  block = {};
  return true;
}

}  // namespace

int64_t damaged_blocks() {
  const Region& all = region();
  const size_t used = std::min(all.taken.load() + 1, kPages);
  return all.damaged + std::count_if(all.blocks, all.blocks + used, [](const Block& block) {
           return block.start != nullptr && !block.surroundings_hold();
         });
}

}  // namespace tutti::training::testing

// Replace the functions of the C library.
extern "C" int posix_memalign(void** memory, size_t alignment, size_t size) noexcept {
  *memory = tutti::training::testing::allocate(alignment, size);
  return *memory == nullptr ? ENOMEM : 0;
}
extern "C" void free(void* memory) noexcept {
  if (!tutti::training::testing::release(memory)) __libc_free(memory);
}
