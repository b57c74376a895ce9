// The bytes that a connection has sent and its reader's system has not confirmed. They are kept so
// that another connection can send them again. The position of a byte is the number of bytes before
// it in the stream, which continues over all connections.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>

#include "transport/tcp/slots.h"

namespace tutti {

class Unconfirmed {
 public:
  // Starts empty. `slots` must outlive this object.
  explicit Unconfirmed(Slots& slots) : slots_(slots) {}

  // Adds bytes sent for the first time. `slot`: the slot that holds them unchanged; null: they are
  // copied.
  void add(std::span<const std::byte> bytes, Slots::Slot* slot);
  // Drops all bytes before `position`, which have arrived. `position` is at most sent().
  void confirm(uint64_t position);
  size_t bytes() const { return static_cast<size_t>(end_ - begin_); }
  uint64_t arrived() const { return begin_; }
  // Returns the number of bytes that the present connection has sent, plus the bytes that earlier
  // connections delivered.
  uint64_t sent() const { return next_; }

  // Makes next() continue at `position`. Returns false if some byte from `position` to the last
  // byte sent is not kept.
  bool rewind(uint64_t position);
  // next() returns bytes to send again, empty if there are none. advance() marks the first `bytes`
  // of these bytes as sent.
  std::span<const std::byte> next() const;
  void advance(size_t bytes);

 private:
  // A run of bytes in a slot. The piece holds a reference to the slot.
  struct Piece {
    Slots::Slot* slot;
    size_t begin;
    size_t end;
    size_t size() const { return end - begin; }
  };

  void copy(std::span<const std::byte> bytes);

  Slots& slots_;
  std::deque<Piece> pieces_;
  uint64_t begin_ = 0;  // position of the first piece
  uint64_t next_ = 0;
  uint64_t end_ = 0;
  size_t at_ = 0;      // index of the piece that contains next_, or the number of pieces
  size_t within_ = 0;  // offset of next_ in that piece
  // The slot into which bytes are copied; many small messages share it.
  Slots::Slot* copies_ = nullptr;
  size_t copied_ = 0;
};

}  // namespace tutti
