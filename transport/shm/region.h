// The memory that the ranks of one host share for one communicator, and its layout.
//
//   header | doorbells | lenders | acks[reader][sender] | cells[sender][reader][lane][] |
//   arena[sender]
//
// A cell is one cache line. It holds a whole message header, its own sequence number, and either
// the payload itself, the index of the arena slot that has the payload, or the location of a lent
// payload. A cell also states how far its sender has released the messages of the opposite
// direction, so that two ranks that exchange messages need not read each other's acks. Every
// counter has a single writer.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "base/fd.h"
#include "transport/limits.h"
#include "transport/message.h"

namespace tutti::shm {

inline constexpr int kMaxLanes = 15;   // collective lanes; one more is for point-to-point calls
inline constexpr uint32_t kCells = 4;  // messages in flight per connection
inline constexpr size_t kInlineBytes = 24;  // payloads up to this size are stored in the cell
// Added to the index of a slot (Cell::slot) that has several readers.
inline constexpr int kShared = 1 << 14;

struct alignas(64) Cell {
  std::atomic<uint32_t> sequence;  // the n-th message on this connection has n; written last
  int16_t slot;  // index of a slot in the sender's arena; -1: payload in the cell; -2: lent
  // number of the reader's messages on this lane that the sender has released, low 16 bits
  uint16_t released;
  MessageHeader header;
  std::byte payload[kInlineBytes];
};
static_assert(sizeof(Cell) == 64);

// Number of one sender's messages that one reader has released, by lane. Only the reader writes it.
struct alignas(64) Acks {
  std::array<std::atomic<uint32_t>, kMaxLanes + 1> released;
};

struct alignas(64) Doorbell {
  std::atomic<uint32_t> rings;   // futex word
  std::atomic<uint32_t> asleep;  // kAwake, or the way in which the owner must be woken
};

// State of a rank as lender; only that rank writes it.
struct alignas(64) Lender {
  std::atomic<uint32_t> epoch;     // loans of earlier epochs are revoked
  std::atomic<uint32_t> attached;  // 1: the rank has mapped the region
};

// Values of Doorbell::asleep, the way in which the owner sleeps. The owner sleeps on the futex word
// Doorbell::rings if it waits for this region only. Otherwise it sleeps on descriptors, one of
// which is a socket through which peers wake it.
inline constexpr uint32_t kAwake = 0;
inline constexpr uint32_t kSleepsOnWord = 1;
inline constexpr uint32_t kSleepsOnSocket = 2;

struct alignas(64) Header {
  std::atomic<uint32_t> detached;     // number of ranks that no longer access the region
  std::atomic<uint32_t> attached;     // number of ranks that have mapped the region
  std::atomic<uint32_t> full_fences;  // 1: some rank cannot be reached by asymmetric fences
};

// Returns an upper bound, in bytes, of the shared memory of a region of up to 128 ranks.
size_t most_bytes(int ranks);

// Sizes of the region. They depend only on the number of ranks that share the region and on the
// maximum of that number over all hosts, because programs (lanes, slots, message sizes) must be the
// same on all hosts.
struct Geometry {
  Geometry(int ranks, int largest_group);

  int ranks;
  int lanes;      // number of collective lanes
  int slots;      // collective slots per rank, shared by its connections
  int p2p_slots;  // point-to-point slots per rank and reader
  size_t slot_bytes;
  size_t p2p_slot_bytes;

  Limits limits() const;
  size_t total_bytes() const;
  size_t doorbell(int rank) const;
  size_t lender(int rank) const;
  size_t acks(int reader, int sender) const;
  size_t cells(int sender, int reader, int lane) const;
  size_t slot(int sender, int slot) const;
  size_t p2p_slot(int sender, int reader, int slot) const;

 private:
  size_t arena(int sender) const;
};

// A mapping of a region. Ranks that are threads of one process share one mapping.
class Region {
 public:
  // Creates a sealed, zeroed memfd with room for the region and, behind it, for heaps (heap.h) if
  // possible.
  static Fd create(const Geometry& geometry, uint64_t heap_bytes = 0);
  static std::shared_ptr<Region> map(const Fd& memory, const Geometry& geometry,
                                     uint64_t offset = 0);
  Region(void* base, size_t bytes) : base_(static_cast<std::byte*>(base)), bytes_(bytes) {}
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  ~Region();

  template <typename T>
  T* at(size_t offset) const {
    return reinterpret_cast<T*>(base_ + offset);
  }
  size_t bytes() const { return bytes_; }

 private:
  std::byte* base_;
  size_t bytes_;
};

}  // namespace tutti::shm
