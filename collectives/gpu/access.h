// Reads and writes 16-byte vectors in memory, which may be unaligned, and in the lines of a
// message.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/gpu/call.h"
#include "collectives/gpu/device/annotate.h"
#include "collectives/gpu/device/words.h"

namespace tutti::gpu {

// Unit in which the threads access an operand; equal for all threads.
enum class Unit : uint8_t { bytes, words, vectors, lines };

// One operand of a part of a step, in one slice.
struct Access {
  std::byte* at = nullptr;  // address; null: no operand
  Unit unit = Unit::bytes;
  bool widened = false;
  bool scales = false;
  uint32_t flag = 0;  // flag in each line; used only with Unit::lines
};

TUTTI_DEVICE Unit unit_of(const std::byte* at) {
  const auto address = reinterpret_cast<uintptr_t>(at);
  if (address % sizeof(Vector) == 0) return Unit::vectors;
  return address % sizeof(uint32_t) == 0 ? Unit::words : Unit::bytes;
}

// Reads `bytes` (at most 16) from memory; the rest of the vector is zero.
TUTTI_DEVICE Vector read_some(const std::byte* from, uint32_t bytes) {
  Vector vector;
  TUTTI_UNROLL
  for (uint32_t i = 0; i < sizeof(Vector); ++i) {
    if (i < bytes) vector.words[i / 4] |= static_cast<uint32_t>(from[i]) << (8 * (i % 4));
  }
  return vector;
}

TUTTI_DEVICE void write_some(std::byte* to, const Vector& vector, uint32_t bytes) {
  TUTTI_UNROLL
  for (uint32_t i = 0; i < sizeof(Vector); ++i) {
    if (i < bytes) to[i] = static_cast<std::byte>(vector.words[i / 4] >> (8 * (i % 4)));
  }
}

TUTTI_DEVICE Vector read_words(const std::byte* from) {
  const auto* const words = reinterpret_cast<const uint32_t*>(from);
  return {{words[0], words[1], words[2], words[3]}};
}

TUTTI_DEVICE void write_words(std::byte* to, const Vector& vector) {
  auto* const words = reinterpret_cast<uint32_t*>(to);
  TUTTI_UNROLL
  for (int i = 0; i < 4; ++i) words[i] = vector.words[i];
}

// Waits until the line has arrived, and returns it. Returns an empty line if the kernel is to stop.
template <typename Block>
TUTTI_DEVICE Line await_line(Block& block, const Line* from, uint32_t flag) {
  for (;;) {
    const Line line = block.thread.load_line(from);
    if (line.flag0 == flag && line.flag1 == flag) return line;
    if (block.must_stop(from, flag)) return {};
  }
}

// Returns the vector at byte offset `offset` (a multiple of 16) of the operand. Only the first
// `bytes` bytes of the vector are needed. `kFast`: all bytes are needed, and the operand has vector
// access.
template <bool kFast, typename Block>
TUTTI_DEVICE Vector read(Block& block, const Access& access, uint64_t offset, uint32_t bytes) {
  if constexpr (kFast) return *reinterpret_cast<const Vector*>(access.at + offset);
  if (bytes == 0) return {};
  if (access.unit == Unit::lines) {
    const auto* const lines = reinterpret_cast<const Line*>(access.at) + offset / kLineData;
    const Line first = await_line(block, lines, access.flag);
    const Line second = bytes > kLineData ? await_line(block, lines + 1, access.flag) : Line{};
    return {{first.data0, first.data1, second.data0, second.data1}};
  }
  const std::byte* const from = access.at + offset;
  if (bytes < sizeof(Vector) || access.unit == Unit::bytes) return read_some(from, bytes);
  if (access.unit == Unit::words) return read_words(from);
  return *reinterpret_cast<const Vector*>(from);
}

template <bool kFast, typename Block>
TUTTI_DEVICE void write(Block& block, const Access& access, uint64_t offset, const Vector& vector,
                        uint32_t bytes) {
  if constexpr (kFast) {
    *reinterpret_cast<Vector*>(access.at + offset) = vector;
    return;
  }
  if (bytes == 0) return;
  if (access.unit == Unit::lines) {
    auto* const lines = reinterpret_cast<Line*>(access.at) + offset / kLineData;
    const uint32_t flag = access.flag;
    block.thread.store_line(lines, {vector.words[0], flag, vector.words[1], flag});
    if (bytes > kLineData) {
      block.thread.store_line(lines + 1, {vector.words[2], flag, vector.words[3], flag});
    }
    return;
  }
  std::byte* const to = access.at + offset;
  if (bytes < sizeof(Vector) || access.unit == Unit::bytes) return write_some(to, vector, bytes);
  if (access.unit == Unit::words) return write_words(to, vector);
  *reinterpret_cast<Vector*>(to) = vector;
}

}  // namespace tutti::gpu
