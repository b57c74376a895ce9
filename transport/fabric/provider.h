// A fabric in this process: one driver that sends and receives for all communicators, and their
// messages in flight. A communicator's FabricTransport is a Listener on it.
//
//     a message   -> its communicator's listener; kept until it is attached
//     an end      -> handled in the same way, and acknowledged to its sender
//
// An end is the last message of a communicator to a peer. It states the number of messages on each
// lane. A rank leaves the job once its ends are acknowledged, so its peers know how many messages
// it sent them.
//
// Memory: take_slot() gives a slot to the caller; after the last send from the slot has completed,
// the slot belongs to the provider again. Lent memory stays with its owner. Received data
// (Arrival::data) belongs to the driver, and may be read by the listener until drop().
//
// Threads: any. Functions in the sections "with the lock held" need lock(). Listeners are called
// under it.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "transport/fabric/driver.h"
#include "transport/wait_set.h"

namespace tutti::fabric {

// Memory of a send: kMessageBytes bytes that belong to the provider, or lent memory.
struct Slot {
  std::unique_ptr<std::byte[]> own;
  std::byte* memory = nullptr;
  int sends = 0;         // number of sends in flight
  bool spoiled = false;  // true: a failed send or access may still use it, so it is never reused
};

class Listener {
 public:
  virtual ~Listener() = default;
  // Handles a message or a control message. Returns true to keep `data`.
  virtual bool on_arrival(const Arrival& arrival) = 0;
  // Reports that a send on `connection` has completed; `well` is false if it failed.
  virtual void sent(size_t connection, bool well) = 0;
};

class Provider final : private Events {
 public:
  explicit Provider(std::unique_ptr<Driver> driver);
  Provider(const Provider&) = delete;
  Provider& operator=(const Provider&) = delete;
  // Destroys the driver; leave() must be called first. After a failure the driver and the memory
  // that it may read are leaked on purpose: UCX 1.13 aborts the process when a worker with
  // connections in progress is destroyed.
  ~Provider() override;
  // Returns the number of drivers that this process has leaked after failures.
  static size_t drivers_kept();

  // Returns the name of the library, for messages.
  std::string name() const { return driver_->name(); }

  // Returns the address of this process for its peers. It is opaque to them.
  const std::string& address() const { return address_; }
  // The ranks of the joined job.
  struct Ranks {
    int own = 0;
    int count = 0;
    std::function<std::string_view(int rank)> address_of;
    std::function<bool(int rank)> gone;  // returns true if the rank has left or died
  };
  // Joins the job. Arrivals wake `wait_set`. Must be called before the first attach().
  void join(Ranks ranks, WaitSet& wait_set);
  // Waits until all ends are acknowledged by ranks that are not gone; gives up when no
  // acknowledgement arrives for the time that set_send_timeout() has set.
  void leave();

  std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }
  // Returns true if anything progressed. Does nothing while another thread holds the lock.
  bool progress();
  // Arms the driver: from now on arrivals make its descriptor readable.
  void arm();
  // Adds the descriptors to sleep on after arm().
  void watch(WaitSet& set);
  // Returns the number of ranks with a broken path.
  uint32_t breaks() const { return breaks_.load(std::memory_order_acquire); }
  // Returns true after fork() in the child, which must not use this object: all resources belong to
  // the parent.
  bool forked() const;

  // ---- to be called with the lock held

  bool progress_locked();
  bool broken(int rank) const { return broken_.contains(rank); }
  std::string why(int rank) const;  // why the path to `rank` is broken; empty: it is not broken
  bool gone(int rank) const { return ranks_.gone(rank); }
  // Cancels everything in flight to and from `rank` (Driver::cut()).
  void cut(int rank) { driver_->cut(rank); }
  void attach(uint64_t communicator, Listener& listener);
  void detach(uint64_t communicator);

  Slot* take_slot();
  void give_back(Slot* slot);
  // Sends to rank `to` of the job. `slot` holds the payload (only for messages;
  // header.message.bytes long), and is returned automatically once none of its sends is in flight.
  // `from`, which may be null, is notified of the completion.
  void send(int to, const Header& header, Slot* slot, Listener* from, size_t connection);
  // Sends an end as send() does. leave() waits for its acknowledgement.
  void send_end(int to, Header header);
  // Sets how long leave() waits without an acknowledgement; 0: no limit.
  void set_send_timeout(std::chrono::nanoseconds send_timeout) { send_timeout_ = send_timeout; }
  // Stops waiting for acknowledgements of the ends of this communicator, which was aborted.
  void forget_ends(uint64_t communicator);
  // Receives a rendezvous' payload (Driver::receive()).
  void receive(const Arrival& arrival, std::byte* memory, std::atomic<RendezvousState>& coming) {
    driver_->receive(arrival, memory, coming);
  }
  // Discards a payload that is no longer needed.
  void drop(const Arrival& arrival) {
    if (arrival.data != nullptr) driver_->drop(arrival);
  }

  // ---- remote memory access, also with the lock held: see Driver

  using Exposed = Driver::Exposed;
  Exposed expose(std::span<std::byte> memory) { return driver_->expose(memory); }
  void conceal(uint64_t id) { driver_->conceal(id); }
  // Keeps exposed memory until this object is destroyed.
  void keep(std::shared_ptr<void> memory) { kept_memory_.push_back(std::move(memory)); }
  std::unique_ptr<Remote> reach(int rank, std::string_view key) {
    return broken(rank) ? nullptr : driver_->reach(rank, key);
  }
  // An access whose memory is a slot of the provider. `coming` becomes here or lost at its end.
  struct Accessing : Access {
    Slot* slot = nullptr;
    bool given_up = false;
    std::atomic<RendezvousState> coming{RendezvousState::no};
  };
  // Returns an access with kMessageBytes of memory; the caller sets its other members.
  Accessing* take_access();
  void begin_access(Accessing& access);
  // Ends an access, or gives it up while in flight; must not be used afterwards.
  void end_access(Accessing* access);

 private:
  struct Sending : Send {
    Slot* slot = nullptr;
    Listener* from = nullptr;
    size_t connection = 0;
  };
  // State that must outlive this object after a failed send.
  struct KeptAlive {
    std::unique_ptr<Driver> driver;
    std::vector<std::unique_ptr<Slot>> slots;
    std::vector<std::unique_ptr<Sending>> sends;
    std::vector<std::unique_ptr<Accessing>> accesses;
    std::vector<std::shared_ptr<void>> kept_memory;
  };
  struct Kept;
  // Keeps this state until the process ends.
  static void keep_for_good(KeptAlive kept_alive);

  bool is_ours(const Header& header) const override { return header.key == key_; }
  uint64_t key_of(int rank) const override;
  bool arrived(const Arrival& arrival) override;
  void through(Send& send, bool well) override;
  void accessed(Access& access, bool well) override;
  void broke(int rank, const std::string& why) override;
  bool step();

  const pid_t process_;
  const uint64_t key_;
  std::vector<std::shared_ptr<void>> kept_memory_;  // outlives the driver
  std::unique_ptr<Driver> driver_;
  std::string address_;
  Ranks ranks_;
  WaitSet* wait_set_ = nullptr;
  std::atomic<uint32_t> breaks_{0};

  std::mutex mutex_;                   // guards the driver and the following members
  std::map<int, std::string> broken_;  // ranks with a broken path, and the reason
  bool failed_ = false;                // true: messages to or from some rank may be lost
  std::chrono::nanoseconds send_timeout_{0};
  std::unordered_map<uint64_t, Listener*> listeners_;
  std::unordered_map<uint64_t, std::vector<Arrival>> early_;  // by communicator not attached yet
  std::deque<uint64_t> detached_;                      // the most recently detached communicators
  std::set<std::pair<uint64_t, int>> unacknowledged_;  // ends by communicator and rank
  // Received ends that this rank must acknowledge, by communicator and rank.
  std::vector<std::pair<uint64_t, int>> to_acknowledge_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<Slot*> free_slots_;
  std::vector<std::unique_ptr<Sending>> sends_;
  std::vector<Sending*> free_sends_;
  std::vector<std::unique_ptr<Accessing>> accesses_;
  std::vector<Accessing*> free_accesses_;
};

}  // namespace tutti::fabric
