#include "training/offload/offloaded_pieces.h"

#include <algorithm>

namespace tutti::training {
namespace {

// Number of chunks that are fetched at once: the chunk in which the loop is, and the chunks after
// it.
constexpr size_t kFetched = OffloadedPieces::kChunks - 1;

template <bool is_const>
std::span<const std::byte> bytes_of(const BasicTensor<is_const>& row, const PieceRange& range) {
  if (row.empty() || row.backend != nullptr) return {};
  const auto part = row.col_range(range.first, range.count);
  return {part.data, part.bytes()};
}

// Merges ranges that are adjacent in memory.
void join(std::vector<PageRange>& memory) {
  std::ranges::sort(memory, {}, [](const PageRange& at) { return at.bytes.data(); });
  size_t last = 0;
  for (size_t i = 1; i < memory.size(); ++i) {
    const PageRange& next = memory[i];
    std::span<const std::byte>& before = memory[last].bytes;
    const std::byte* const end = before.data() + before.size();
    // A gap of less than a page is padding, or shares a page with a neighbour.
    constexpr std::ptrdiff_t kGap = 4096;
    if (next.writes == memory[last].writes && next.bytes.data() - end < kGap) {
      before = {before.data(), next.bytes.data() + next.bytes.size()};
    } else {
      memory[++last] = next;
    }
  }
  if (!memory.empty()) memory.resize(last + 1);
}

size_t size_of(const std::vector<PageRange>& memory) {
  size_t bytes = 0;
  for (const PageRange& range : memory) bytes += range.bytes.size();
  return bytes;
}

}  // namespace

void OffloadedPieces::add_memory(const PieceRange& range, const PieceParts& parts,
                                 std::vector<PageRange>& memory) {
  const auto add = [&](std::span<const std::byte> bytes, bool writes) {
    if (!bytes.empty()) memory.push_back({bytes, writes});
  };
  const OwnedPiece& owned = *range.owned;
  if (parts.gradients) add(bytes_of(owned.gradient, range), false);
  if (parts.values) {
    const auto master = std::as_bytes(owned.master);
    if (!master.empty()) {
      add(master.subspan(static_cast<size_t>(range.first) * sizeof(float),
                         static_cast<size_t>(range.count) * sizeof(float)),
          parts.changes_values);
    }
    if (master.empty() || parts.changes_values) {
      add(bytes_of(owned.value, range), parts.changes_values);
    }
  }
  if (parts.states && states_of_) states_of_(range, memory);
  std::erase_if(memory, [&](const PageRange& at) { return !pager_.holds(at.bytes.data()); });
}

void OffloadedPieces::begin_loop(std::span<const PieceRange> ranges, const PieceParts& parts) {
  const std::lock_guard lock(mutex_);
  chunks_.clear();
  chunk_of_.clear();
  open_ = 0;
  size_t bytes = 0;
  std::vector<PageRange> memory;
  for (const PieceRange& range : ranges) {
    memory.clear();
    add_memory(range, parts, memory);
    const size_t more = size_of(memory);
    if (chunks_.empty() || (bytes > 0 && bytes + more > window_ / kChunks)) {
      chunks_.emplace_back();
      bytes = 0;
    }
    bytes += more;
    Chunk& chunk = chunks_.back();
    chunk.memory.insert(chunk.memory.end(), memory.begin(), memory.end());
    ++chunk.left;
    chunk_of_.push_back(chunks_.size() - 1);
  }
  for (Chunk& chunk : chunks_) join(chunk.memory);
  for (size_t chunk = 0; chunk < std::min(kFetched, chunks_.size()); ++chunk) fetch(chunk);
}

void OffloadedPieces::fetch(size_t chunk) {
  chunks_[chunk].fetched = pager_.fetch(chunks_[chunk].memory);
}

void OffloadedPieces::enter(int64_t range) {
  Pager::Ticket ticket = 0;
  {
    const std::lock_guard lock(mutex_);
    ticket = chunks_[chunk_of_[static_cast<size_t>(range)]].fetched;
  }
  if (ticket > 0) pager_.wait(ticket);
}

void OffloadedPieces::leave(int64_t range) {
  const std::lock_guard lock(mutex_);
  --chunks_[chunk_of_[static_cast<size_t>(range)]].left;
  for (; open_ < chunks_.size() && chunks_[open_].left == 0; ++open_) close(open_);
}

// Starts to write the chunk, and evicts the chunk before it, which has had time to be written. The
// memory that this releases is used to fetch the next chunk.
void OffloadedPieces::close(size_t chunk) {
  pager_.start_writing(chunks_[chunk].memory);
  if (chunk == 0) return;
  pager_.evict(chunks_[chunk - 1].memory);
  const size_t next = chunk - 1 + kFetched;
  if (next < chunks_.size()) fetch(next);
}

// Evicts the last chunks. If an error ended the loop, it also evicts the chunks that the loop has
// not left.
void OffloadedPieces::end_loop() {
  const std::lock_guard lock(mutex_);
  const size_t first = open_ == 0 ? 0 : open_ - 1;
  for (size_t chunk = first; chunk < chunks_.size(); ++chunk) pager_.evict(chunks_[chunk].memory);
  chunks_.clear();
}

void OffloadedPieces::evict(const OwnedPiece& owned) {
  std::vector<PageRange> memory;
  add_memory({&owned, 0, owned.piece.count}, {}, memory);
  pager_.evict(memory);
}

}  // namespace tutti::training
