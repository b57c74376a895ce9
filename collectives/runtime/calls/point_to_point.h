// Point-to-point messages of one communicator: which receive takes which message.
//
// Messages between two ranks arrive in the order in which they were sent. A receive names a source
// or none, and a tag or none; a message goes to the oldest receive that accepts it. A message that
// no receive accepts stays with the transport, so that its sender is held up, until a receive of
// another tag wants what is behind it: then it is kept aside, up to TUTTI_UNEXPECTED_BYTES in all.
// Beyond that the sender is held up as well, until messages that are kept have been received, or a
// thread waits for (or polls) a receive that may be met behind this message: that receive takes
// precedence over the limit, since the program may have nothing else that goes on.
//
//     front of the stream of rank 2:  tag 5 | tag 7        receives: (from 2, tag 7)
//                                       |      `------------------------^
//                                       `--> kept, for whoever asks for tag 5
//
// Messages of a rank to itself never see a transport: they are kept at once.
//
// The library's own messages (Request::own) and the callers' know nothing of each other.
//
// Threads: one at a time, as the communicator's mutex has it.
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
  // What this asks of the communicator.
  struct Owner {
    const AbortState& abort;
    std::function<bool(Operation&)> may_start;  // what it follows is complete
    std::function<void(Operation&)> completed;
    std::function<void(Operation&)> abandoned;
    std::function<void(const Error&)> failed;
    std::function<void(const Operation&, const Unexpected&)> unexpected;
    // The message of `source`, its call `their_call`, does not fit the receive that it goes to.
    std::function<void(const Operation&, int source, uint32_t their_call, const Signature&)> misfit;
    // Of the receive of one message.
    std::function<std::shared_ptr<const CompiledCall>(Buffer, int source, const Signature&)>
        compiled;
    std::atomic<uint64_t>* received;  // Execution::start()
  };

  // `most_kept`: bytes of messages of other ranks that are kept aside without a thread that waits.
  PointToPoint(int rank, int size, uint64_t most_kept, Owner owner);
  // Before anything else; null where there is only one rank.
  void use(Transport* transport) { transport_ = transport; }
  // The program of a message in one direction.
  const Plan* plan(int peer, bool sends);

  // Both count from when what they follow is complete.
  void send(Operation& operation);
  // A receive, or a probe: that ends as soon as there is a message that it accepts, and leaves the
  // message where it is.
  void receive(Operation& operation);
  // A receive or probe that no message was found for is forgotten; it is done then.
  void withdraw(Operation& operation);

  // True if anything moved.
  bool progress();
  // After an abort: nothing moves any more.
  void abandon();
  int under_way() const { return under_way_; }
  // Whom the operation waits for; of a receive from any source, every one of them may end it.
  std::vector<Want> wants(const Operation& operation) const;
  struct Unclaimed {
    MessageInfo message;
    bool own = false;  // the library's
  };
  // Messages that are kept, and that nobody has asked for: the first few.
  std::vector<Unclaimed> unclaimed() const;

 private:
  struct Outgoing {
    OperationQueue calls;  // the first one runs
    Execution execution;
    uint32_t made = 0;
    std::unique_ptr<Plan> plan;  // made at the first call, as is the next
  };
  struct Incoming {
    OperationQueue receives;     // from this source, oldest first
    Operation* taker = nullptr;  // of the message that arrives now
    Operation* ready = nullptr;  // the oldest one, if the execution has been started for it
    Execution execution;
    uint32_t taken = 0;
    std::unique_ptr<Plan> plan;
  };
  struct Message {
    int source = 0;
    uint32_t call = 0;
    std::array<uint64_t, 2> signature = {};
  };
  struct Kept {
    Message message;
    std::unique_ptr<std::byte[]> payload;
    std::unique_ptr<Operation> arriving;  // null once all of it is there
    Operation* taker = nullptr;
  };

  bool is_early(Operation& operation);
  bool progress_early();
  bool is_wanted(const Incoming& in) const {
    return in.taker != nullptr || !in.receives.empty() || !from_any_.empty();
  }
  bool progress_sends(int peer);
  bool progress_from(int source);
  bool advance(Operation& operation, Execution& execution);
  bool match(int source);
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
  std::vector<Outgoing> outgoing_;
  std::vector<Incoming> incoming_;
  OperationQueue from_any_;  // receives, oldest first
  OperationQueue early_;     // what they follow is not complete
  std::list<Kept> kept_;     // in the order of their arrival
  uint64_t kept_bytes_ = 0;  // of other ranks' messages among these
  const uint64_t most_kept_;
  uint64_t receives_ = 0;
  int under_way_ = 0;
};

}  // namespace tutti::internal
