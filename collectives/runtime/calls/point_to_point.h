// Point-to-point messages of one communicator: matching of messages with receives.
//
// Messages between two ranks arrive in the order in which they were sent. A receive may name a
// source and a tag; a message matches the oldest receive that accepts it. A message that no receive
// accepts stays in the transport and blocks its sender, until a receive with another tag needs a
// later message. The earlier message is then buffered, up to TUTTI_UNEXPECTED_BYTES in total.
// Beyond that limit the sender stays blocked until buffered messages have been received, or until a
// thread waits for (or polls) a receive that may match a later message. Such a receive overrides
// the limit, because the program may be unable to continue without it.
//
//     front of the stream of rank 2:  tag 5 | tag 7        receives: (from 2, tag 7)
//                                       |      `------------------------^
//                                       `--> buffered until a receive asks for tag 5
//
// A message of a rank to itself never reaches a transport: it is copied into the receive that waits
// for it, or else buffered at once.
//
// Library-internal messages (Request::own) never match callers' receives, and vice versa.
//
// Threads: not thread-safe; guarded by the communicator's mutex.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "base/abort.h"
#include "base/error.h"
#include "collectives/program/plan.h"
#include "collectives/runtime/calls/execution.h"
#include "collectives/runtime/calls/operation.h"
#include "collectives/runtime/calls/operation_queue.h"

namespace tutti::internal {

class PointToPoint {
 public:
  // Callbacks into the communicator.
  struct Owner {
    const AbortState& abort;
    std::function<bool(Operation&)> may_start;  // returns true if the predecessors are complete
    std::function<void(Operation&)> completed;
    std::function<void(Operation&)> abandoned;
    std::function<void(const Error&)> failed;
    std::function<void(const Operation&, const Unexpected&)> unexpected;
    // Reports that a message of `source` (its call number `their_call`) does not fit its receive.
    std::function<void(const Operation&, int source, uint32_t their_call, const Signature&)>
        on_mismatch;
    // Compiles the receive of one message.
    std::function<std::shared_ptr<const CompiledCall>(Buffer, int source, const Signature&)>
        compiled;
    std::atomic<uint64_t>* received;  // counters of bytes by peer, for Execution::start()
  };

  // Prepares for `rank` of `size`. `most_kept`: most bytes of other ranks' messages that are
  // buffered while no thread waits for a receive.
  PointToPoint(int rank, int size, uint64_t most_kept, Owner owner);
  // Sets the transport. Call it before all other functions if there are several ranks.
  void use(Transport* transport) { transport_ = transport; }
  // Returns the plan of a message in one direction.
  const Plan* plan(int peer, bool sends);

  // Starts a send as soon as its predecessors (Operation::after) are complete.
  void send(Operation& operation);
  // Starts a receive or a probe as soon as its predecessors are complete. A probe completes when a
  // matching message has arrived, and does not consume it.
  void receive(Operation& operation);
  // Cancels a receive or probe that no message has matched. The operation is then done.
  void withdraw(Operation& operation);

  // Returns true if anything progressed.
  bool progress();
  // Stops all progress, after an abort.
  void abandon();
  int in_flight() const { return in_flight_; }
  // Returns the peers that the operation waits for. A receive from any source waits for all peers,
  // and a message from one of them suffices.
  std::vector<AwaitedPeer> awaited_peers(const Operation& operation) const;
  struct Unclaimed {
    MessageInfo message;
    bool own = false;  // true: library-internal
  };
  // Returns the first few buffered messages that no receive has matched.
  std::vector<Unclaimed> unclaimed() const;

 private:
  struct Outgoing {
    OperationQueue calls;  // sends; the first one runs
    Execution execution;
    uint32_t made = 0;
    std::unique_ptr<Plan> plan;  // made at the first call
  };
  struct Incoming {
    OperationQueue receives;     // receives from this source, oldest first
    Operation* taker = nullptr;  // receive of the message that is arriving
    Operation* ready = nullptr;  // the oldest receive, if `execution` was started for it
    Execution execution;
    uint32_t taken = 0;
    std::unique_ptr<Plan> plan;
  };
  struct Peer {
    explicit Peer(int of_rank) : rank(of_rank) {}
    const int rank;
    Outgoing out;
    Incoming in;
  };
  struct Message {
    int source = 0;
    uint32_t call = 0;
    std::array<uint64_t, 2> signature = {};
  };
  struct Kept {
    Message message;
    std::unique_ptr<std::byte[]> payload;
    // Operation that receives the message into `payload`; null once it has arrived completely.
    std::unique_ptr<Operation> arriving;
    Operation* taker = nullptr;  // receive that matches the message; null: none yet
  };

  Peer& peer(int rank);
  bool is_early(Operation& operation);
  bool progress_early();
  bool is_wanted(const Incoming& in) const {
    return in.taker != nullptr || !in.receives.empty() || !from_any_.empty();
  }
  bool progress_sends(Peer& to);
  bool progress_from(Peer& from);
  bool progress_from_any();
  bool advance(Operation& operation, Execution& execution);
  bool match(Peer& from);
  void get_ready(Incoming& in);
  bool take_expected(Incoming& in, const MessageHeader& header);
  Operation* taker_of(const Message& message);
  bool fits(Operation& receive, const Message& message);
  bool found_kept(Operation& receive);
  bool may_keep(const Incoming& in, const Message& message) const;
  static bool is_awaited(const OperationQueue& receives);
  std::unique_ptr<std::byte[]> room_for(const Message& message);
  bool keep(const Message& message);
  void arrived(Operation& operation);
  void deliver(std::list<Kept>::iterator kept);
  void complete(Operation& operation);
  OperationQueue& list_of(const Operation& receive);

  const int rank_;
  const Owner owner_;
  Transport* transport_ = nullptr;
  // Only ranks with which this rank has exchanged messages have a Peer, and only these ranks are
  // polled. So neither memory nor time grows with the number of ranks.
  std::vector<std::unique_ptr<Peer>> peers_;  // by rank; null before the first message
  std::vector<Peer*> used_;                   // the peers that exist
  OperationQueue from_any_;                   // receives from any source, oldest first
  OperationQueue early_;                      // operations whose predecessors are not complete
  std::list<Kept> kept_;                      // buffered messages in order of arrival
  uint64_t kept_bytes_ = 0;                   // bytes of other ranks' messages in kept_
  const uint64_t most_kept_;
  uint64_t receives_ = 0;
  int in_flight_ = 0;
};

}  // namespace tutti::internal
