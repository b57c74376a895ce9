#include "training/offload/file_arena.h"

#include <algorithm>

namespace tutti::training {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kLeastChunk = size_t{1} << 20;

}  // namespace

std::byte* FileArena::take(size_t wanted) {
  const size_t bytes = (wanted + kPage - 1) / kPage * kPage;
  while (current_ < chunks_.size() && bytes > chunks_[current_].size - in_chunk_) {
    ++current_;
    in_chunk_ = 0;
  }
  if (current_ == chunks_.size()) {
    // Each chunk doubles the allocated memory, so there are few chunks.
    const size_t size = std::max({bytes, used_, kLeastChunk});
    chunks_.push_back({pager_.allocate(size), size});
  }
  std::byte* const memory = chunks_[current_].memory.get() + in_chunk_;
  in_chunk_ += bytes;
  used_ += bytes;
  high_water_ = std::max(high_water_, used_);
  return memory;
}

void FileArena::release() { current_ = in_chunk_ = used_ = 0; }

}  // namespace tutti::training
