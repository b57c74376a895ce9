#include "training/checkpoint/background_save.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace tutti::training {
namespace {

// The same pieces, of memory that nobody changes.
std::vector<TensorPiece> copied(std::span<const TensorPiece> pieces,
                                std::vector<std::byte>& memory) {
  size_t bytes = 0;
  for (const TensorPiece& piece : pieces) bytes += piece.data.bytes();
  if (memory.size() < bytes) memory.resize(bytes);
  std::vector<TensorPiece> copies(pieces.begin(), pieces.end());
  std::byte* to = memory.data();
  for (TensorPiece& piece : copies) {
    std::byte* const next = std::copy_n(piece.data.data, piece.data.bytes(), to);
    piece.data.data = std::exchange(to, next);
  }
  return copies;
}

}  // namespace

BackgroundSave::BackgroundSave(const SaveRequest& request, std::span<const TensorPiece> pieces,
                               Group group, std::vector<std::byte>& memory)
    : save_(request, copied(pieces, memory), std::move(group)),
      work_(std::async(std::launch::async, [this] { save_.write(); })) {}

bool BackgroundSave::busy() const {
  return work_.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
}

bool BackgroundSave::advance() {
  work_.get();
  if (!writing_) {
    save_.conclude();
    return true;
  }
  save_.collect();
  writing_ = false;
  work_ = std::async(std::launch::async, [this] { save_.publish(); });
  return false;
}

}  // namespace tutti::training
