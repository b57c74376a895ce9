// The agreement protocol: the remaining members of a communicator agree on which members remain,
// and on flags, although more of them may die meanwhile.
//
// The first member that has not gone is the coordinator. All members send their votes to the
// coordinator until they learn the decision. The coordinator asks members that are silent. When it
// has the votes of all remaining members it proposes their result. Once all of them have accepted
// the proposal it is decided:
//
//     member       coordinator
//       | -- vote --> |          flags, and the latest proposal that this member has accepted
//       | <- propose- |          the latest accepted proposal, otherwise the result of the votes
//       | -- accept-> |
//       | <- decided- |          also sent to members that vote later
//
// This is single-decree Paxos (Lamport: Paxos made simple, 2001, section 2). The coordinators'
// numbers are the rounds: a member that has voted for a coordinator ignores earlier ones. A quorum
// must take part (quorum.h), so that at most one side of a partitioned job continues. Messages from
// a member that has gone are ignored. Otherwise its last messages could still arrive at some
// members while other members, which know that it has gone, decide without it. So no two living
// members ever hold different decisions of one agreement
// (tests/collectives/membership_model_test.cc).
//
// A decision about a change of members also separates members that are alive but cannot reach each
// other for data (separation.h): each vote states which members its sender reaches.
//
// Used by the control thread only. Messages may be lost; all are repeated until they are answered.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "transport/bootstrap/handshake/frame.h"
#include "transport/bootstrap/membership/agreed.h"
#include "transport/bootstrap/membership/quorum.h"

namespace tutti::bootstrap {

// The functions of the control channel that agreements use.
class AgreementChannel {
 public:
  virtual ~AgreementChannel() = default;
  virtual int own_rank() const = 0;
  virtual bool is_rank(int number) const = 0;  // returns true if `number` is a rank of the job
  virtual std::string name_of(int rank) const = 0;
  virtual void send_to(int rank, const std::string& frame) = 0;
  virtual bool has_gone(int rank) const = 0;
  // Returns true if the rank is certainly gone, not only unreachable: the launcher saw it end, or
  // it said goodbye.
  virtual bool has_ended(int rank) const = 0;
  // Returns false for a rank that is alive but unreachable for data.
  virtual bool reaches(int rank) const = 0;
  virtual std::string_view host_of(int rank) const = 0;
  // Returns true if reports of ended ranks may still arrive.
  virtual bool may_learn_of_ends() const = 0;
  virtual Clock::time_point now() const = 0;
  virtual void call_after(std::chrono::milliseconds delay, std::function<void()> what) = 0;
};

// Identifies an agreement: the communicator and the number of the agreement on it.
struct AgreementId {
  uint64_t communicator = 0;
  uint32_t number = 0;
  auto operator<=>(const AgreementId&) const = default;
};

class Agreements {
 public:
  // Receives the decision or the error. It is called once, and never after abandon().
  using Done = std::function<void(const Agreed*, const Error*)>;

  // Creates an object without agreements. `channel` must outlive this object and its copies.
  explicit Agreements(AgreementChannel& channel) : channel_(&channel) {}

  // Starts an agreement, or continues one that has failed.
  void start(AgreementId id, Contribution contribution, std::chrono::milliseconds timeout,
             Done done);
  // Reads the fields of a frame addressed to this rank. Returns false if malformed.
  bool on_frame(FrameReader& frame);
  // Checks all agreements again after ranks have gone.
  void look_again();
  // Drops all agreements; no more messages will arrive.
  void abandon() { agreements_.clear(); }
  // Returns, as text, the state (without times) that determines this rank's next step. Equal states
  // have equal texts.
  std::string state() const;

 private:
  enum class Kind : uint8_t { vote = 1, propose = 2, accept = 3, decided = 4, ask = 5 };
  // The value of a proposal. In the vote of a member that has accepted no proposal yet, it is the
  // member's contribution, and `living` states which members it reaches (empty: all).
  struct Decision {
    uint64_t flags = 0;
    std::vector<bool> living;  // by position in the member list
  };
  struct Message {
    AgreementId id;
    Kind kind = Kind::vote;
    int from = 0;    // rank of the job
    int round = -1;  // in a vote: round of the accepted proposal
    Decision decision;
  };
  struct Agreement {
    std::vector<int> members;  // empty: this rank has not called start()
    Decision own;              // this rank's contribution
    Done done;
    Clock::time_point deadline;
    std::chrono::milliseconds pause{0};
    // Number of calls of start(). Each call cancels the timers of the previous call.
    uint32_t start = 0;
    std::optional<Clock::time_point> minority_since;
    int promised = -1;  // the latest round voted for; earlier rounds are obsolete
    int accepted_round = -1;
    Decision accepted;
    std::map<int, Message> votes;      // used by the coordinator, by rank
    std::optional<Decision> proposal;  // proposal of this rank as coordinator
    std::set<int> acceptances;         // members that have accepted the proposal
    std::optional<Decision> decided;

    bool in_flight() const { return done != nullptr; }
  };

  Agreement& entry(AgreementId id);
  void make_room();
  void step(AgreementId id, Agreement& agreement, bool again);
  // Handles an agreement in which too few members remain for a quorum: waits for reports that
  // absent members have ended, or fails if no such report can arrive any more.
  void step_in_minority(Agreement& agreement);
  // Does the coordinator's next step. If `again` is true, messages sent before are repeated. A
  // received message triggers at most one answer, because otherwise messages would multiply.
  void coordinate(AgreementId id, Agreement& agreement, int round, bool again);
  void propose(AgreementId id, Agreement& agreement, int round);
  void decide(AgreementId id, Agreement& agreement, const Decision& decision);
  void fail(Agreement& agreement, const Error& error);
  void repeat(AgreementId id, uint32_t start);
  static const Decision& vote_of(const Agreement& agreement) {
    return agreement.accepted_round < 0 ? agreement.own : agreement.accepted;
  }
  int coordinator_of(const Agreement& agreement) const;
  std::vector<int> left_of(const Agreement& agreement) const;
  Quorum quorum_of(const Agreement& agreement) const;
  std::vector<bool> separated(const Agreement& agreement, std::vector<bool> living) const;
  Error cut_off(const Agreement& agreement) const;
  Error overdue(const Agreement& agreement) const;
  void send(AgreementId id, Kind kind, int to, int round, const Decision& decision);

  AgreementChannel* channel_;
  std::map<AgreementId, Agreement> agreements_;
  // All agreements, the oldest first. Finished ones are kept for members that ask or retry. An
  // agreement that this rank has not started holds the votes that arrived.
  std::deque<AgreementId> order_;
};

}  // namespace tutti::bootstrap
