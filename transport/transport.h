// Bytes between the ranks of one communicator. A transport has never heard of a collective.
//
// Between every two ranks there are lanes() + 1 lanes in each direction, each a FIFO of messages of
// its own: 0 .. lanes() - 1 carry collectives, lane lanes() carries point-to-point calls. A
// connection is one lane from one rank to another; it opens on first use.
//
// Nothing here has a default: a transport that wraps another cannot forget to pass something on.
//
// Outbox: a sender publishes a message once, for one reader or several. reserve() gives memory to
// write into, commit() makes it visible. Slots belong to the sender. Each reader has a sequence
// number of its own, so a slow reader holds up nobody but the slot.
//
// Inbox: front() is the oldest message on a connection that was not released. payload() is its
// contents, read in place; read() puts them where the caller wants them; release() gives the slot
// back to the sender, and tells whether what was read may be believed.
//
// Threads: all calls from one thread at a time; which one may change.
//
// Failure: nothing throws after construction. A broken path is told once to whoever made the
// transport (Paths::Events); from then on its messages do not come, reserve() and the like may go
// on to succeed, and nothing that they publish arrives.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "transport/limits.h"
#include "transport/message.h"
#include "transport/wait_set.h"

namespace tutti {

// How received bytes are stored: as usual, or past the caches (base/stream_copy.h) where that takes
// a copy anyway.
enum class Store : uint8_t { cached, streamed };

// A transport has these for as long as it lives.
struct Traits {
  Limits limits;  // `slots`: messages of collectives under way from a rank, over all connections
  bool needs_descriptors = false;  // false: a word in memory (WaitSet::add_word) ends a sleep
  bool wakes_slowly = false;       // waking takes longer than most messages do
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

  // Memory for one message to every one of `peers` on `lane`; null when there is no room now. It is
  // the transport's, and the caller's to write into until commit(). Reserving again without a
  // commit takes the first one back. A connection never holds more than `credit` slots, so that
  // whoever divides the slots among its connections can rely on its share.
  virtual std::byte* reserve(std::span<const int> peers, int lane, size_t bytes, int credit) = 0;
  // Publishes the reserved message, whose memory is the readers' from here on; header.bytes is what
  // reserve() was asked for.
  virtual void commit(const MessageHeader& header) = 0;
  // reserve(), copy and commit() in one; saves the copy where it can. The payload is the caller's
  // again on return. False: no room now, and nothing was sent. header.bytes is payload.size().
  virtual bool write(int peer, int lane, const MessageHeader& header,
                     std::span<const std::byte> payload, int credit) = 0;

  // A message whose payload is read where it lies, in memory that all of `peers` can see: nothing
  // is copied. The memory is lent: it must neither change nor be freed until take_back() has said
  // true or revoke() has returned.
  virtual bool can_lend(std::span<const int> peers, std::span<const std::byte> payload) const = 0;
  // Only what can be lent, of any length. A number for take_back(), or -1: no room now.
  virtual int lend(std::span<const int> peers, int lane, const MessageHeader& header,
                   std::span<const std::byte> payload) = 0;
  // True, once, when all readers have released it.
  virtual bool take_back(int loan) = 0;
  // Ends all loans without asking their readers. When this returns the memory is the lender's to
  // write again: nobody believes what is read there later, or was read and is not released yet.
  virtual void revoke() = 0;

  // True once every committed message has left this rank's hands: its readers get it although this
  // rank makes no further call. A call is not complete before.
  virtual bool collectives_sent() const = 0;
  virtual bool p2p_sent(int peer) const = 0;
  // The readers of collectives' messages that have not left yet.
  virtual std::vector<int> unsent() const = 0;
  // Nothing more will be committed: each connection ends after what was.
  virtual void end_sending() = 0;

  // ---- inbox

  // Null when nothing is there yet. The header may arrive before the payload.
  virtual const MessageHeader* front(int peer, int lane) = 0;
  // Null until all of it is there. Valid until release().
  virtual const std::byte* payload(int peer, int lane) = 0;
  // Places the payload (destination.size() is header.bytes); false: not complete yet, call again
  // with the same destination, which may have been written to in part and must live until then. Not
  // to be mixed with payload() for one message.
  virtual bool read(int peer, int lane, std::span<std::byte> destination, Store store) = 0;
  // The reader needs no more of the payload before `bytes`. Said block by block, while what was
  // read is still at hand, it saves time (ShmTransport); release() says it of the rest.
  virtual void used(int peer, int lane, size_t bytes) = 0;
  // False where the payload was lent and its owner has revoked it: what was read may be anything,
  // and the message stays where it is, unreadable.
  virtual bool release(int peer, int lane) = 0;
  // Of a peer that is known to send no more: true once everything that it sent on this connection
  // has been released. Look for a message first.
  virtual bool ended(int peer, int lane) const = 0;

  // ---- waiting

  // Moves bytes where that takes somebody's hand (sockets). True if anything moved.
  virtual bool progress() = 0;
  // How to sleep without missing anything: arm(), then try everything wanted once more; if nothing
  // moved, watch() adds what is to end the sleep: a message that arrives or a slot that comes free
  // since arm(). disarm() in any case. `set` has begun; spurious wakes are fine.
  virtual void arm(WaitSet& set) = 0;
  virtual void watch(WaitSet& set) = 0;
  virtual void disarm() = 0;

 protected:
  // write() by the three.
  bool write_by_copy(int peer, int lane, const MessageHeader& header,
                     std::span<const std::byte> payload, int credit);

 private:
  const Traits traits_;
};

}  // namespace tutti
