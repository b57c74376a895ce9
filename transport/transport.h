// Messages between the ranks of one communicator. A transport is independent of collectives.
//
// Between every two ranks there are lanes() + 1 lanes in each direction. Each lane is a FIFO. Lanes
// 0 .. lanes() - 1 carry collectives, lane lanes() carries point-to-point calls. A connection is
// one lane from one rank to another, and is opened on first use.
//
// No function has a default implementation, so that a transport that wraps another cannot forget to
// forward one.
//
// Outbox: a sender publishes a message once, for one reader or several. reserve() returns memory to
// write into, commit() publishes it. Slots belong to the sender. Each reader has its own sequence
// number, so a slow reader blocks only the reuse of its slot.
//
// Inbox: front() returns the header of the oldest message that the reader has not released.
// payload() returns the message's payload, to be read in place; read() copies the payload to the
// caller's destination. release() returns the slot to the sender, and reports whether the data read
// is valid.
//
// Threads: one call at a time; the thread may change.
//
// Failure: nothing throws after construction. A broken path is reported once to the owner of the
// transport (Paths::Events). From then on no messages arrive on that path. reserve() and other
// calls may continue to succeed, but messages that they publish there are dropped.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "transport/limits.h"
#include "transport/message.h"
#include "transport/wait_set.h"

namespace tutti {

// Selects how received bytes are stored if they must be copied: normally, or bypassing the caches
// (base/stream_copy.h).
enum class Store : uint8_t { cached, streamed };

// Constant properties of a transport.
struct Traits {
  Limits limits;  // `slots`: collective messages in flight from a rank, over all connections
  // True if a rank that waits for this transport must sleep on descriptors; false if it can sleep
  // on a futex word (WaitSet::add_word).
  bool needs_descriptors = false;
  bool wakes_slowly = false;  // waking a sleeper takes longer than most messages do
};

class Transport {
 public:
  explicit Transport(const Traits& traits) : traits_(traits) {}
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;
  virtual ~Transport() = default;

  const Traits& traits() const { return traits_; }
  int lanes() const { return traits_.limits.lanes; }

  // ---- outbox

  // Reserves memory for one message to each of `peers` on `lane`; null if there is no room now. The
  // memory belongs to the transport; the caller may write into it until commit(). A second
  // reserve() without commit() cancels the first. A connection never holds more than `credit`
  // slots, so that a sender can divide the slots among its connections.
  virtual std::byte* reserve(std::span<const int> peers, int lane, size_t bytes, int credit) = 0;
  // Publishes the reserved message; its memory then belongs to the readers. header.bytes must equal
  // the size passed to reserve().
  virtual void commit(const MessageHeader& header) = 0;
  // Combines reserve(), copy and commit(), without the copy if possible. The payload may be reused
  // on return. Returns false if there is no room now; then nothing was sent. header.bytes must
  // equal payload.size().
  virtual bool write(int peer, int lane, const MessageHeader& header,
                     std::span<const std::byte> payload, int credit) = 0;

  // Returns true if all of `peers` can read this payload in place, without a copy. The memory is
  // then lent: it must neither change nor be freed until take_back() has returned true or revoke()
  // has returned.
  virtual bool can_lend(std::span<const int> peers, std::span<const std::byte> payload) const = 0;
  // Sends a payload that can be lent, of any length. Returns the loan, for take_back(), or -1 if
  // there is no room now.
  virtual int lend(std::span<const int> peers, int lane, const MessageHeader& header,
                   std::span<const std::byte> payload) = 0;
  // Returns true, once, when all readers have released the loan.
  virtual bool take_back(int loan) = 0;
  // Ends all loans, even if their readers have not released them. On return the lender may write
  // the memory again. In shared memory, release() then returns false at these readers, which
  // discard the data (epoch check). Over a fabric, their reads have ended, or the path is cut.
  virtual void revoke() = 0;

  // Returns true once every committed collective message reaches its readers without further calls
  // by this rank. A collective must not complete earlier.
  virtual bool collectives_sent() const = 0;
  virtual bool p2p_sent(int peer) const = 0;
  // Returns the peers to which collective messages are still queued or in flight.
  virtual std::vector<int> unsent() const = 0;
  // Declares that nothing more will be committed: each connection ends after its last message.
  virtual void end_sending() = 0;

  // ---- inbox

  // Returns the header of the oldest message; null while there is none. The header may arrive
  // before the payload.
  virtual const MessageHeader* front(int peer, int lane) = 0;
  // Returns the payload; null until all of it has arrived. Valid until release().
  virtual const std::byte* payload(int peer, int lane) = 0;
  // Copies the payload into `destination` (header.bytes long). Returns false while it is
  // incomplete: call again with the same destination, which may be partly written and must live
  // until then. Must not be mixed with payload() for one message.
  virtual bool read(int peer, int lane, std::span<std::byte> destination, Store store) = 0;
  // Declares that the reader no longer needs the first `bytes` bytes of the payload. Calling this
  // block by block, while the data is still in the cache, saves time (ShmTransport). release() does
  // the same for the rest of the payload.
  virtual void used(int peer, int lane, size_t bytes) = 0;
  // Releases the message. Returns false if the payload was lent and its owner has revoked it: the
  // data read is invalid, and the message stays at the front, unreadable.
  virtual bool release(int peer, int lane) = 0;
  // Returns true once everything that a peer sent on this connection has been released. Meaningful
  // only after the peer has stopped sending; check front() first.
  virtual bool ended(int peer, int lane) const = 0;

  // ---- waiting

  // Drives I/O for transports that need polling (sockets). Returns true if anything progressed.
  virtual bool progress() = 0;
  // Prepare and end a sleep: call arm(), then try every wanted operation once more. If nothing
  // progressed, watch() adds the events that end the sleep: a message that arrived, or a slot that
  // became free, since arm(). Call disarm() in any case. The caller has called set.begin().
  // Spurious wakes are allowed.
  virtual void arm(WaitSet& set) = 0;
  virtual void watch(WaitSet& set) = 0;
  virtual void disarm() = 0;

 protected:
  // Implements write() by reserve(), copy and commit().
  bool write_by_copy(int peer, int lane, const MessageHeader& header,
                     std::span<const std::byte> payload, int credit);

 private:
  const Traits traits_;
};

}  // namespace tutti
