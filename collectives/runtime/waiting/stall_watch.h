// Determines why calls have stalled, by questions and answers among the ranks. Each rank answers
// with its current call and the ranks that it waits for.
//
//     rank 0 waits for 1:   ask(1) ------>  answer(): "at call 7, waiting for 3"
//            then asks 3:   ask(3) ------>  answer(): "has made no call yet"
//     explain(): "waiting for rank 1, which is at call 7, and waits for rank 3; waiting for rank 3,
//                 which has made no call yet"; rank 3 is the culprit
//
// If ranks wait for one another in a circle, the culprit is the rank that could proceed: it waits
// for a message that has been sent, for a peer that has finished the call, or for room at a peer
// that has taken all messages. The counts of messages in the answers show which rank that is.
//
// Thread-safe. Ranks are ranks of the communicator unless noted.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/runtime/calls/exchange.h"
#include "collectives/runtime/calls/signature.h"
#include "collectives/runtime/waiting/flight_recorder.h"
#include "collectives/runtime/waiting/lateness.h"

namespace tutti::internal {

class StallWatch {
 public:
  // The functions of the control channel that are used here. They must not block.
  struct Channel {
    std::function<void(int peer, uint32_t call)> ask;
    std::function<int(int peer)> way_to;                // rank of the job: Control::way_to()
    std::function<std::string(int job_rank)> describe;  // result of Control::describe()
  };

  // Watches the calls of `rank`. `members[r]`: rank r's rank in the job. Both references must
  // outlive this object.
  StallWatch(int rank, const std::vector<int>& members, const FlightRecorder& recorder,
             Channel channel)
      : rank_(rank), members_(members), recorder_(recorder), channel_(std::move(channel)) {}

  // --- asking: calls are identified by their numbers, 0 for messages

  // Asks the missing ranks, the ranks that these reported waiting for, and the rank that forwards
  // the question to each of them (Channel::way_to). Each rank is asked once per call, and again if
  // `again` is set.
  void ask(std::vector<int> missing, uint32_t call, bool again);
  // Records the answer of `peer`. An empty answer means that `peer` has destroyed its communicator.
  void note_answer(int peer, uint32_t call, std::string_view answer);
  // Publishes the messages that this rank has exchanged in `call`, the call that it waits in (0: a
  // message, whose exchanges are not counted).
  void note_exchanges(uint32_t call, std::vector<Exchange> exchanges);
  // Records that this rank no longer waits. Recorded answers are kept.
  void stop_waiting();
  void forget_answers();

  // --- results

  // A peer that made this call with other arguments, and the signature of its call.
  struct Mismatch {
    int peer = 0;
    Signature signature;
  };
  std::optional<Mismatch> mismatch(uint32_t call, const Signature& mine) const;
  // Returns the peers that have destroyed their communicator.
  std::set<int> destroyed() const;
  struct Explanation {
    std::string text;
    int culprit = -1;  // rank of the job that probably causes the stall; -1: none
  };
  // Returns an explanation of the stall. It follows the chain of waiting ranks, starting from the
  // missing ones.
  Explanation explain(std::vector<int> missing, bool point_to_point) const;

  // --- answering

  std::string answer(uint32_t call) const;
  // Returns the ranks that this rank waits for.
  std::vector<int> waits_for() const;

  // --- stragglers

  bool knows_late(uint32_t call) const;
  // Records that `job_rank` was late in `call`. Returns the number of such calls in a row if a
  // warning is due; otherwise nullopt.
  std::optional<uint32_t> note_late(uint32_t call, int job_rank);

 private:
  // Progress of a rank: its calls, and the messages exchanged in the call that it waits in.
  struct Progress {
    uint32_t current = 0;    // number of the oldest unfinished call; 0: none
    uint32_t last_call = 0;  // number of the last call made
    uint32_t waits_in = 0;   // number of the call of `exchanges`; 0: unknown
    bool lists_all = true;   // true: the rank exchanged nothing with peers that are not listed
    std::vector<Exchange> exchanges;

    bool has_finished(uint32_t call) const;
    // Returns the messages exchanged with a peer; null if they are unknown.
    const Exchange* with(int peer, int lane) const;
  };
  struct PeerState {
    bool made_call = false;
    uint32_t last_call = 0;
    Progress progress;
    Signature signature;
    std::vector<int> waits_for;
    bool destroyed = false;
  };

  int size() const { return static_cast<int>(members_.size()); }
  int member(int job_rank) const;
  std::string describe(const PeerState& peer, bool point_to_point) const;
  std::string describe_member(int rank) const {
    return channel_.describe(members_[static_cast<size_t>(rank)]);
  }
  // The caller holds the mutex.
  Progress own_progress() const;
  std::optional<Progress> progress_of(int rank) const;
  std::string why_stuck(int rank) const;

  const int rank_;
  const std::vector<int>& members_;
  const FlightRecorder& recorder_;
  const Channel channel_;
  mutable std::mutex mutex_;    // guards everything below
  std::vector<int> waits_for_;  // ranks that this rank waits for
  uint32_t waits_in_ = 0;       // number of the call of exchanges_; 0: unknown
  std::vector<Exchange> exchanges_;
  std::set<int> asked_;
  uint32_t asked_call_ = 0;
  std::map<int, PeerState> answers_;
  Lateness lateness_;
};

}  // namespace tutti::internal
