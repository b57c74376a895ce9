// Loads the files of owned pieces while loops use them, and writes them back. Adjacent ranges form
// chunks, which are read ahead of the loop and written behind it.
//
//   the loop is in chunk k    k-1: being written   k, k+1, k+2: loaded   k+3: being read
//
// At most kChunks chunks are in memory, which together form the window.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <vector>

#include "training/core/owned_piece.h"
#include "training/core/piece_loop.h"
#include "training/offload/pager.h"

namespace tutti::training {

class OffloadedPieces : public PieceLoopObserver {
 public:
  // Creates the object. `window`: maximum number of bytes of files in memory, unless a single range
  // exceeds a chunk.
  OffloadedPieces(Pager& pager, size_t window) : pager_(pager), window_(window) {}

  // Function that appends the memory of a range's optimizer states.
  using StatesOf = std::function<void(const PieceRange& range, std::vector<PageRange>& memory)>;
  void set_states(StatesOf states_of) { states_of_ = std::move(states_of); }

  void begin_loop(std::span<const PieceRange> ranges, const PieceParts& parts) override;
  void enter(int64_t range) override;
  void leave(int64_t range) override;
  void end_loop() override;

  // Releases the memory of all parts of a piece. Must not be called during a loop.
  void evict(const OwnedPiece& owned);

  static constexpr size_t kChunks = 5;

 private:
  struct Chunk {
    std::vector<PageRange> memory;
    int64_t left = 0;  // number of ranges that the loop has not left
    Pager::Ticket fetched = 0;
  };

  void add_memory(const PieceRange& range, const PieceParts& parts, std::vector<PageRange>& memory);
  void fetch(size_t chunk);
  void close(size_t chunk);

  Pager& pager_;
  const size_t window_;
  StatesOf states_of_;
  std::mutex mutex_;
  std::vector<Chunk> chunks_;
  std::vector<size_t> chunk_of_;  // index of each range's chunk
  size_t open_ = 0;               // index of the first chunk that the loop has not left
};

}  // namespace tutti::training
