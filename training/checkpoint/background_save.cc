#include "training/checkpoint/background_save.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <system_error>
#include <utility>

namespace tutti::training {
namespace {

// Copies the data of the pieces to `memory`, which grows if needed. Returns pieces that refer to
// the copies.
std::vector<TensorPiece> copied(std::span<const TensorPiece> pieces,
                                std::vector<std::byte>& memory) {
  size_t bytes = 0;
  for (const TensorPiece& piece : pieces) bytes += piece.data.bytes();
  if (memory.size() < bytes) memory.resize(bytes);
  std::vector<TensorPiece> copies(pieces.begin(), pieces.end());
  std::byte* to = memory.data();
  for (TensorPiece& piece : copies) {
    const std::byte* const copy = to;
    read_parts(piece,
               [&](std::span<const std::byte> bytes) { to = std::ranges::copy(bytes, to).out; });
    piece.data.data = copy;
    piece.after_reading = nullptr;
  }
  return copies;
}

// Starts `work` on a thread. If none can be created, the work runs when its future is waited for.
std::future<void> begun(const std::function<void()>& work) {
  try {
    return std::async(std::launch::async, work);
  } catch (const std::system_error&) {
    return std::async(std::launch::deferred, work);
  }
}

}  // namespace

BackgroundSave::BackgroundSave(const SaveRequest& request, std::span<const TensorPiece> pieces,
                               Group group, std::vector<std::byte>& memory)
    : save_(request, copied(pieces, memory), std::move(group)),
      work_(begun([this] { save_.write(); })) {}

bool BackgroundSave::busy() const {
  return work_.wait_for(std::chrono::seconds(0)) == std::future_status::timeout;
}

bool BackgroundSave::advance() {
  work_.get();
  if (!writing_) {
    save_.conclude();
    return true;
  }
  save_.collect();
  writing_ = false;
  work_ = begun([this] { save_.publish(); });
  return false;
}

}  // namespace tutti::training
