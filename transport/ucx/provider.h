// UCX in this process: one worker that sends and receives for all communicators, and the messages
// that are under way. A communicator's UcxTransport is a Listener on it.
//
//     a message   -> its communicator's listener; kept, where that is not there yet
//     an end      -> too, and is acknowledged: a rank leaves the job when its ends have been
//
// So of a rank that has left it is known how much it sent, and to whom.
//
// Memory: a slot is its taker's until the last send from it is through, then the provider's again.
// What UCX has received (Arrival::data) is UCX's, and the listener's to read until drop().
//
// Threads: any, but what is marked "locked" under lock(). Listeners are called under it.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "transport/ucx/endpoints.h"
#include "transport/ucx/wire.h"
#include "transport/ucx/worker.h"
#include "transport/wait_set.h"

namespace tutti::ucx {

inline constexpr size_t kMessageBytes = 512 << 10;
inline constexpr size_t kSmallBytes = 64;  // of a payload that is not worth keeping UCX's buffer

struct Slot {
  std::unique_ptr<std::byte[]> memory;  // kMessageBytes
  int sends = 0;                        // from it, under way
};

struct Arrival {
  Header header;
  void* data = nullptr;     // UCX's; null: the payload is in `small`
  bool rendezvous = false;  // `data` is but what receive() takes; the payload is at the sender
  std::array<std::byte, kSmallBytes> small;
};

// How far a rendezvous is.
enum class Coming : uint8_t { no, under_way, here, lost };

class Listener {
 public:
  virtual ~Listener() = default;
  // A message, or what is said of messages. True: keeps `data`.
  virtual bool hear(const Arrival& arrival) = 0;
  // What was sent for `connection` is through, or (false) will never be.
  virtual void sent(size_t connection, bool well) = 0;
};

class Provider {
 public:
  // Throws Error: unsupported (no UCX), system.
  Provider();
  Provider(const Provider&) = delete;
  Provider& operator=(const Provider&) = delete;
  // leave() comes first. After a failure UCX's worker and what it may read stay for good: UCX 1.13
  // ends the process where it destroys a worker whose connections are still in the making.
  ~Provider();

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
  int event_fd() const { return worker_.event_fd(); }
  uint32_t breaks() const { return endpoints_.breaks(); }
  // Not after fork(): all of it is the parent's.
  bool forked() const;

  // ---- locked

  Endpoints& endpoints() { return endpoints_; }
  bool progress_locked();
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
  // Takes a rendezvous' payload into `memory`, and says in `coming` when it is there. Both must
  // live as long as it is under way.
  void receive(const Arrival& arrival, std::byte* memory, std::atomic<Coming>& coming);
  // The payload is not needed any more, or not at all.
  void drop(const Arrival& arrival);

 private:
  struct Send {
    Provider* provider = nullptr;
    Header header;
    Slot* slot = nullptr;
    Listener* from = nullptr;
    size_t connection = 0;
    int to = 0;
  };
  // What must outlive this after a failure.
  struct Remains {
    Worker worker;
    std::vector<std::unique_ptr<Slot>> slots;
    std::vector<std::unique_ptr<Send>> sends;
  };
  static void keep_for_good(Remains remains);
  static ucs_status_t on_message(void* provider, const void* header, size_t header_bytes,
                                 void* data, size_t bytes, const ucp_am_recv_param_t* param);
  static void on_sent(void* request, ucs_status_t status, void* send);
  static void on_received(void* request, ucs_status_t status, size_t bytes, void* coming);
  bool hear(const Arrival& arrival);
  bool step();
  void finish(Send& send, ucs_status_t status);

  const pid_t process_;
  const uint64_t key_;
  Worker worker_;
  Endpoints endpoints_{worker_};
  std::string address_;
  Ranks ranks_;
  WaitSet* wait_set_ = nullptr;

  std::mutex mutex_;  // guards UCX and what follows
  bool heard_ = false;
  bool failed_ = false;  // some rank may not have heard all that this one said, or the other way
  std::chrono::nanoseconds patience_{0};
  std::unordered_map<uint64_t, Listener*> listeners_;
  std::unordered_map<uint64_t, std::vector<Arrival>> early_;  // by communicators not attached yet
  std::deque<uint64_t> detached_;                             // the last few
  std::set<std::pair<uint64_t, int>> unacknowledged_;         // ends: communicator, rank
  std::vector<std::pair<uint64_t, int>> to_acknowledge_;      // the same, of others
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<Slot*> free_slots_;
  std::vector<std::unique_ptr<Send>> sends_;
  std::vector<Send*> free_sends_;
};

}  // namespace tutti::ucx
