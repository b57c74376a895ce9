// A fabric in this process: one driver that sends and receives for all communicators, and the
// messages that are under way. A communicator's FabricTransport is a Listener on it.
//
//     a message   -> its communicator's listener; kept, where that is not there yet
//     an end      -> too, and is acknowledged: a rank leaves the job when its ends have been
//
// So of a rank that has left it is known how much it sent, and to whom.
//
// Memory: a slot is its taker's until the last send from it is through, then the provider's again,
// unless its memory was lent: then it stays with whoever made it. What has come (Arrival::data) is
// the driver's, and the listener's to read until drop().
//
// Threads: any, but what is marked "locked" under lock(). Listeners are called under it.
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

// What is sent from: kMessageBytes of the provider's, or memory that was lent.
struct Slot {
  std::unique_ptr<std::byte[]> own;
  std::byte* memory = nullptr;
  int sends = 0;         // from it, under way
  bool spoiled = false;  // one of them failed, whose reader may still read it: never used again
};

class Listener {
 public:
  virtual ~Listener() = default;
  // A message, or what is said of messages. True: keeps `data`.
  virtual bool hear(const Arrival& arrival) = 0;
  // What was sent for `connection` is through, or (false) will never be.
  virtual void sent(size_t connection, bool well) = 0;
};

class Provider final : private Events {
 public:
  explicit Provider(std::unique_ptr<Driver> driver);
  Provider(const Provider&) = delete;
  Provider& operator=(const Provider&) = delete;
  // leave() comes first. After a failure the driver and what it may read stay for good: UCX 1.13
  // ends the process where it destroys a worker whose connections are still in the making.
  ~Provider() override;
  // How many of this process have stayed so.
  static size_t drivers_kept();

  // How the library is called, for people.
  std::string name() const { return driver_->name(); }

  // Opaque; others reach this process by it.
  const std::string& address() const { return address_; }
  // What to know of the job that this process has joined.
  struct Ranks {
    int own = 0;
    int count = 0;
    std::function<std::string_view(int rank)> address_of;
    std::function<bool(int rank)> gone;  // it has left, or died
  };
  // `wait_set` is woken when something came. Before the first attach().
  void join(Ranks ranks, WaitSet& wait_set);
  // Waits until all ends are acknowledged by ranks that are not gone, but no longer than the last
  // one's patience without any being.
  void leave();

  std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }
  // True if anything moved. Does nothing where another thread is at it.
  bool progress();
  // From here on event_fd() tells of what comes.
  void arm();
  // What to sleep on after arm().
  void watch(WaitSet& set);
  // To how many ranks there is no way any more.
  uint32_t breaks() const { return breaks_.load(std::memory_order_acquire); }
  // Not after fork(): all of it is the parent's.
  bool forked() const;

  // ---- locked

  bool progress_locked();
  bool broken(int rank) const { return broken_.contains(rank); }
  std::string why(int rank) const;  // it is broken
  // Driver::cut().
  void cut(int rank) { driver_->cut(rank); }
  void attach(uint64_t communicator, Listener& listener);
  void detach(uint64_t communicator);

  Slot* take_slot();
  void give_back(Slot* slot);
  // To rank `to` of the job. The payload (header.message.bytes; of a message only) is in `slot`,
  // which comes back by itself when no send from it is left. `from` may be null.
  void send(int to, const Header& header, Slot* slot, Listener* from, size_t connection);
  // As send(); its acknowledgement is waited for in leave().
  void send_end(int to, Header header);
  // 0: for ever.
  void set_patience(std::chrono::nanoseconds patience) { patience_ = patience; }
  // Nobody need acknowledge this communicator's ends: it was aborted.
  void forget_ends(uint64_t communicator);
  // Driver::receive().
  void receive(const Arrival& arrival, std::byte* memory, std::atomic<Coming>& coming) {
    driver_->receive(arrival, memory, coming);
  }
  // The payload is not needed any more, or not at all.
  void drop(const Arrival& arrival) {
    if (arrival.data != nullptr) driver_->drop(arrival);
  }

 private:
  struct Sending : Send {
    Slot* slot = nullptr;
    Listener* from = nullptr;
    size_t connection = 0;
  };
  // What must outlive this after a failure.
  struct Remains {
    std::unique_ptr<Driver> driver;
    std::vector<std::unique_ptr<Slot>> slots;
    std::vector<std::unique_ptr<Sending>> sends;
  };
  struct Kept;
  // The driver's events while nobody is left to hear them.
  static void keep_for_good(Remains remains);

  bool is_ours(const Header& header) const override { return header.key == key_; }
  uint64_t key_of(int rank) const override;
  bool arrived(const Arrival& arrival) override;
  void through(Send& send, bool well) override;
  void broke(int rank, const std::string& why) override;
  bool step();

  const pid_t process_;
  const uint64_t key_;
  std::unique_ptr<Driver> driver_;
  std::string address_;
  Ranks ranks_;
  WaitSet* wait_set_ = nullptr;
  std::atomic<uint32_t> breaks_{0};

  std::mutex mutex_;                   // guards the driver and what follows
  std::map<int, std::string> broken_;  // ranks to which there is no way, and why
  bool failed_ = false;  // some rank may not have heard all that this one said, or the other way
  std::chrono::nanoseconds patience_{0};
  std::unordered_map<uint64_t, Listener*> listeners_;
  std::unordered_map<uint64_t, std::vector<Arrival>> early_;  // by communicators not attached yet
  std::deque<uint64_t> detached_;                             // the last few
  std::set<std::pair<uint64_t, int>> unacknowledged_;         // ends: communicator, rank
  std::vector<std::pair<uint64_t, int>> to_acknowledge_;      // the same, of others
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<Slot*> free_slots_;
  std::vector<std::unique_ptr<Sending>> sends_;
  std::vector<Sending*> free_sends_;
};

}  // namespace tutti::fabric
