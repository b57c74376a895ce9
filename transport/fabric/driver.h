// What a library that drives network cards (UCX, libfabric) does for a provider: it carries
// messages, unordered, between the processes of a job. All that is ours (order, credit, whom to
// believe, who is dead) is above it, in provider.h and fabric_transport.h.
//
// Threads: one call at a time. Events are called from within the driver's calls, and must not call
// the driver.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "transport/fabric/wire.h"

namespace tutti::fabric {

inline constexpr size_t kMessageBytes = 512 << 10;  // the largest payload
inline constexpr size_t kSmallBytes = 64;  // of a payload that is not worth keeping a buffer for

// A message on its way to rank `to` of the job. It and its payload, which stays where it is, must
// live until Events::through().
struct Send {
  Header header;
  const std::byte* payload = nullptr;
  size_t bytes = 0;  // of the payload: header.message.bytes of a message, else none
  int to = 0;
};

// A message that has come.
struct Arrival {
  Header header;
  // The driver's, until drop(): the payload, or what receive() needs to know where
  // `rendezvous`. Null: the payload is in `small`.
  void* data = nullptr;
  bool rendezvous = false;
  std::array<std::byte, kSmallBytes> small;
};

// How far a rendezvous is.
enum class Coming : uint8_t { no, under_way, here, lost };

class Events {
 public:
  virtual ~Events() = default;
  // Whoever sent this is of the job. Nothing else of a header is believed before.
  virtual bool is_ours(const Header& header) const = 0;
  // What that rank knows its own by.
  virtual uint64_t key_of(int rank) const = 0;
  // True: `data` is kept until drop().
  virtual bool arrived(const Arrival& arrival) = 0;
  // The driver needs neither it nor its payload any more. False: it will not arrive.
  virtual void through(Send& send, bool well) = 0;
  // There is no way to that rank any more. May be said again.
  virtual void broke(int rank, const std::string& why) = 0;
};

class Driver {
 public:
  Driver() = default;
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;
  // What is under way is given up without a word.
  virtual ~Driver() = default;

  // Who hears; before anything else.
  void tell(Events& events) { events_ = &events; }
  // How the library is called, for people.
  virtual std::string name() const = 0;
  // Opaque; others reach this process by it.
  virtual std::string address() const = 0;
  // Where the ranks are, by address(), empty of one that is known to be gone; this is number `own`
  // of `count`. Before anything is sent.
  struct Ranks {
    int own = 0;
    int count = 0;
    std::function<std::string_view(int rank)> address_of;
  };
  virtual void join(Ranks ranks) = 0;

  // Memory of kMessageBytes that messages will often be sent from and taken into, and that stays.
  virtual void will_use(std::span<std::byte> memory) { static_cast<void>(memory); }
  // May end at once, or (Events::through) later.
  virtual void send(Send& send) = 0;
  // Takes a rendezvous' payload into `memory`, and says in `coming` when it is there. Both must
  // live as long as it is under way. The arrival needs no drop().
  virtual void receive(const Arrival& arrival, std::byte* memory, std::atomic<Coming>& coming) = 0;
  // The payload is not needed any more, or not at all.
  virtual void drop(const Arrival& arrival) = 0;

  // True if anything moved.
  virtual bool progress() = 0;
  // Readable when something has come since arm() last said true.
  virtual int event_fd() const = 0;
  // event_fd() does not tell of all, or is -1: progress must be made now and then.
  virtual bool needs_polling() const { return false; }
  // False: something is there already; make progress and try again.
  virtual bool arm() = 0;

  // Ends what is under way between this process and that rank: when it returns, no memory is
  // touched for it any more. The way is broken then; others may break with it.
  virtual void cut(int rank) = 0;
  virtual void cut_all() = 0;
  // For a child of fork(): nothing is closed, since all of it is the parent's.
  virtual void abandon() = 0;

 protected:
  Events& events() const { return *events_; }

 private:
  Events* events_ = nullptr;
};

}  // namespace tutti::fabric
