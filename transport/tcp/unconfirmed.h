// What a connection has sent and its reader's system has not confirmed yet: kept, so that another
// connection can go on when this one breaks. Bytes are counted from the first that was ever sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>

#include "transport/tcp/slots.h"

namespace tutti {

class Unconfirmed {
 public:
  // Slots must outlive it.
  explicit Unconfirmed(Slots& slots) : slots_(slots) {}

  // What has just been sent for the first time. `slot`: where it lies and will not change; null: it
  // is copied.
  void add(std::span<const std::byte> bytes, Slots::Slot* slot);
  // All before `position` has arrived, and need not be kept. No more than sent().
  void confirm(uint64_t position);
  size_t bytes() const { return static_cast<size_t>(end_ - begin_); }
  uint64_t arrived() const { return begin_; }
  // How many the present connection has sent, with all that those before it had delivered.
  uint64_t sent() const { return next_; }

  // A new connection goes on at `position`. False: what it would have to send is not kept.
  bool rewind(uint64_t position);
  // What is to be sent again next, and that so much of it has been. Empty: nothing, or no more.
  std::span<const std::byte> next() const;
  void advance(size_t bytes);

 private:
  // Bytes that follow each other in a slot, of which the piece is a user.
  struct Piece {
    Slots::Slot* slot;
    size_t begin;
    size_t end;
    size_t size() const { return end - begin; }
  };

  void copy(std::span<const std::byte> bytes);

  Slots& slots_;
  std::deque<Piece> pieces_;
  uint64_t begin_ = 0;  // of the first piece
  uint64_t next_ = 0;
  uint64_t end_ = 0;
  size_t at_ = 0;      // the piece that has next_, or their number
  size_t within_ = 0;  // of that piece, before next_
  // Where copies go: many small messages share a slot.
  Slots::Slot* copies_ = nullptr;
  size_t copied_ = 0;
};

}  // namespace tutti
