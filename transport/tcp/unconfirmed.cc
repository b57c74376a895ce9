#include "transport/tcp/unconfirmed.h"

#include <algorithm>

#include "base/copy_bytes.h"

namespace tutti {

namespace {

// Minimum size of a piece that stays in its slot. Smaller ones are copied, because they would keep
// a whole slot in use.
constexpr size_t kLeastInPlace = 16 << 10;

}  // namespace

void Unconfirmed::add(std::span<const std::byte> bytes, Slots::Slot* slot) {
  if (slot != nullptr && bytes.size() >= kLeastInPlace) {
    const auto begin = static_cast<size_t>(bytes.data() - slot->memory.get());
    pieces_.push_back({slot, begin, begin + bytes.size()});
    ++slot->users;
  } else {
    copy(bytes);
  }
  end_ += bytes.size();
  next_ = end_;
  at_ = pieces_.size();
  within_ = 0;
}

void Unconfirmed::copy(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (copies_ == nullptr || copied_ == Slots::kBytes) {
      if (copies_ != nullptr) slots_.drop(copies_);
      copies_ = slots_.take();
      copied_ = 0;
    }
    const size_t size = std::min(bytes.size(), Slots::kBytes - copied_);
    copy_bytes(copies_->memory.get() + copied_, bytes.data(), size);
    if (!pieces_.empty() && pieces_.back().slot == copies_ && pieces_.back().end == copied_) {
      pieces_.back().end += size;
    } else {
      pieces_.push_back({copies_, copied_, copied_ + size});
      ++copies_->users;
    }
    copied_ += size;
    bytes = bytes.subspan(size);
  }
}

void Unconfirmed::confirm(uint64_t position) {
  while (begin_ < position) {
    Piece& first = pieces_.front();
    const auto gone = static_cast<size_t>(std::min<uint64_t>(position - begin_, first.size()));
    begin_ += gone;
    first.begin += gone;
    if (at_ == 0) within_ -= gone;
    if (first.size() > 0) break;
    slots_.drop(first.slot);
    pieces_.pop_front();
    if (at_ > 0) --at_;
  }
  if (pieces_.empty()) copied_ = 0;  // copies_ has no other user
}

bool Unconfirmed::rewind(uint64_t position) {
  if (position < begin_ || position > end_) return false;
  at_ = 0;
  within_ = 0;
  next_ = begin_;
  while (next_ < position) {
    const auto left = static_cast<size_t>(position - next_);
    advance(std::min(left, next().size()));
  }
  confirm(position);
  return true;
}

std::span<const std::byte> Unconfirmed::next() const {
  if (at_ == pieces_.size()) return {};
  const Piece& piece = pieces_[at_];
  return {piece.slot->memory.get() + piece.begin + within_, piece.size() - within_};
}

void Unconfirmed::advance(size_t bytes) {
  next_ += bytes;
  within_ += bytes;
  if (within_ < pieces_[at_].size()) return;
  ++at_;
  within_ = 0;
}

}  // namespace tutti
