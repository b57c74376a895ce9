// The interface to a library that drives network cards (UCX, libfabric): it carries unordered
// messages between the processes of a job. Order, credit, authentication and failure detection are
// implemented above it, in provider.h and fabric_transport.h.
//
// Threads: one call at a time. The driver invokes the Events during these calls; events must not
// call the driver.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "transport/fabric/wire.h"

namespace tutti::fabric {

inline constexpr size_t kMessageBytes = 512 << 10;  // maximum payload of a message, in bytes
// Payloads of up to this many bytes do not occupy a buffer.
inline constexpr size_t kSmallBytes = 64;

// A message in flight to rank `to` of the job. This object and the payload, which is not copied,
// must live until Events::through().
struct Send {
  Header header;
  const std::byte* payload = nullptr;
  size_t bytes = 0;  // payload size: header.message.bytes of a message, otherwise 0
  int to = 0;
};

// A received message.
struct Arrival {
  Header header;
  // Owned by the driver until drop(): the payload, or, if `rendezvous`, the handle that receive()
  // needs. Null: the payload is in `small`.
  void* data = nullptr;
  bool rendezvous = false;
  std::array<std::byte, kSmallBytes> small;
};

// Memory that another rank has exposed (Driver::expose), as this driver addresses it. Must be
// destroyed before the driver.
class Remote {
 public:
  virtual ~Remote() = default;
};

// A read or write of another rank's exposed memory. This object and `memory` must live until
// Events::accessed().
struct Access {
  std::shared_ptr<Remote> remote;
  int rank = 0;  // rank of the memory's owner in the job
  uint64_t offset = 0;
  std::byte* memory = nullptr;
  size_t bytes = 0;  // at most kMessageBytes
  bool writes = false;
};

// Use of remote memory access for windows. automatic: only if network cards perform it, because
// over sockets the library emulates it by messages of its own, which are slower.
enum class Rma : uint8_t { automatic, on, off };

// Progress of a rendezvous or an access: not started, in flight, its bytes have arrived, or failed.
enum class RendezvousState : uint8_t { no, in_flight, here, lost };

class Events {
 public:
  virtual ~Events() = default;
  // Returns true if the sender belongs to the job. The driver trusts no other field of a header
  // before this check.
  virtual bool is_ours(const Header& header) const = 0;
  // Returns the key by which `rank` recognises messages of its job.
  virtual uint64_t key_of(int rank) const = 0;
  // Takes a received message. Returns true to keep `data` until drop().
  virtual bool arrived(const Arrival& arrival) = 0;
  // Reports that the driver no longer needs the message and its payload. `well` is false if the
  // message will not arrive.
  virtual void through(Send& send, bool well) = 0;
  // Reports that the access has ended. `well` is true if the data of a read are in this process's
  // memory, or the data of a write are visible in the owner's. If false, the network card may still
  // use the memory.
  virtual void accessed(Access& access, bool well) = 0;
  // Reports that the path to `rank` is broken. It may be called repeatedly.
  virtual void broke(int rank, const std::string& why) = 0;
};

class Driver {
 public:
  Driver() = default;
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;
  // Abandons operations in flight without calling events.
  virtual ~Driver() = default;

  // Sets the receiver of events; must be called first.
  void tell(Events& events) { events_ = &events; }
  // Returns the name of the library, for messages.
  virtual std::string name() const = 0;
  // Returns the address of this process for its peers. It is opaque to them.
  virtual std::string address() const = 0;
  // The ranks of the job: this process has rank `own`, of `count` ranks. `address_of` returns a
  // rank's address(), empty for a rank known to be gone. join() must be called before the first
  // send.
  struct Ranks {
    int own = 0;
    int count = 0;
    std::function<std::string_view(int rank)> address_of;
  };
  virtual void join(Ranks ranks) = 0;

  // Announces long-lived memory of kMessageBytes that messages will often be sent from and received
  // into.
  virtual void will_use(std::span<std::byte> memory) { static_cast<void>(memory); }
  // Sends a message. It may complete during this call or later; Events::through() reports it.
  virtual void send(Send& send) = 0;
  // Receives a rendezvous' payload into `memory`, and sets `coming` on completion. `memory` and
  // `coming` must stay valid until then. The arrival needs no drop().
  virtual void receive(const Arrival& arrival, std::byte* memory,
                       std::atomic<RendezvousState>& coming) = 0;
  // Discards a payload that is no longer needed.
  virtual void drop(const Arrival& arrival) = 0;

  // ---- remote memory access (RMA), for drivers that have it

  struct Exposed {
    uint64_t id = 0;
    std::string key;  // opaque, for Driver::reach() on other ranks; empty: refused
  };
  // Lets other ranks access this memory until conceal(id). After that the network card refuses
  // their accesses.
  virtual Exposed expose(std::span<std::byte> memory) {
    static_cast<void>(memory);
    return {};
  }
  virtual void conceal(uint64_t id) { static_cast<void>(id); }
  // Returns the memory that `rank` has exposed with this key; null if it cannot be reached.
  virtual std::unique_ptr<Remote> reach(int rank, std::string_view key) {
    static_cast<void>(rank);
    static_cast<void>(key);
    return nullptr;
  }
  // Begins an access. May complete at once, or later (Events::accessed).
  virtual void access(Access& access) { events().accessed(access, false); }

  // ---- progress

  // Returns true if anything progressed.
  virtual bool progress() = 0;
  // Returns a descriptor that becomes readable when something has arrived since the last successful
  // arm().
  virtual int event_fd() const = 0;
  // Returns true if event_fd() misses some events, or is -1. Then progress() must be called
  // regularly.
  virtual bool needs_polling() const { return false; }
  // Prepares event_fd() for a sleep. Returns false if something has already arrived; then call
  // progress() and try again.
  virtual bool arm() = 0;

  // Cancels everything in flight between this process and `rank`: after return, the driver touches
  // none of its memory. The path to `rank` is then broken; paths to other ranks may break with it.
  virtual void cut(int rank) = 0;
  virtual void cut_all() = 0;
  // Called in a forked child: nothing is closed, because all resources belong to the parent.
  virtual void abandon() = 0;

 protected:
  Events& events() const { return *events_; }

 private:
  Events* events_ = nullptr;
};

}  // namespace tutti::fabric
