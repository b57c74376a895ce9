// How the members of a communicator that are left agree on who that is, and on flags, although more
// of them may die meanwhile.
//
// The first member that has not gone coordinates. All tell it their votes until they hear of the
// end; it asks those that say nothing. When it has heard all that are left it proposes what comes
// of it, and once all of these have accepted that it is decided:
//
//     member       coordinator
//       | -- vote --> |          flags, and what this one has accepted from a coordinator before
//       | <- propose- |          what the latest of them had proposed, else what the votes come to
//       | -- accept-> |
//       | <- decided- |          also told to whoever votes later
//
// This is Paxos of one decision (Lamport: Paxos made simple, 2001, section 2), whose rounds are the
// coordinators' numbers: a member that has voted for one ignores those before it. A quorum must
// take part (quorum.h), so that of a job that is cut in two only one side continues. A member that
// has gone is not listened to any more: its last messages may still be on the way when others, who
// know that it has ended, decide without it. So there are never two decisions of one agreement with
// a living member each (tests/collectives/membership_model_test.cc).
//
// A decision about a change of members also separates members that live, but cannot reach each
// other for data (separation.h): each vote says which members its sender reaches.
//
// Belongs to the control thread. Messages may be lost; all are repeated until there is an answer.
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

// What agreements need of the control channel.
class AgreementChannel {
 public:
  virtual ~AgreementChannel() = default;
  virtual int own_rank() const = 0;
  virtual bool is_rank(int number) const = 0;  // of the job
  virtual std::string name_of(int rank) const = 0;
  virtual void send_to(int rank, const std::string& frame) = 0;
  virtual bool has_gone(int rank) const = 0;
  // It is not only out of reach: the launcher saw it end, or it said goodbye.
  virtual bool has_ended(int rank) const = 0;
  // False for a rank that lives, but to which data connections fail.
  virtual bool reaches(int rank) const = 0;
  virtual std::string_view host_of(int rank) const = 0;
  // Somebody who sees ranks end will say so, if late.
  virtual bool may_hear_of_ends() const = 0;
  virtual Clock::time_point now() const = 0;
  virtual void call_after(std::chrono::milliseconds delay, std::function<void()> what) = 0;
};

// Which: the n-th of a communicator.
struct AgreementId {
  uint64_t communicator = 0;
  uint32_t number = 0;
  auto operator<=>(const AgreementId&) const = default;
};

class Agreements {
 public:
  // Called once: with the decision, or with why there is none. Not at all after abandon().
  using Done = std::function<void(const Agreed*, const Error*)>;

  // `channel` outlives this and its copies.
  explicit Agreements(AgreementChannel& channel) : channel_(&channel) {}

  // Begins an agreement, or continues one that has failed.
  void start(AgreementId id, Contribution contribution, std::chrono::milliseconds timeout,
             Done done);
  // The fields of a frame that is for this rank. False for nonsense.
  bool on_frame(FrameReader& frame);
  // Ranks have gone.
  void look_again();
  // There will be no more messages: all are dropped.
  void abandon() { agreements_.clear(); }
  // All that decides what this rank does next, except times. Equal for equal states.
  std::string state() const;

 private:
  enum class Kind : uint8_t { vote = 1, propose = 2, accept = 3, decided = 4, ask = 5 };
  // In a vote that has accepted nothing yet: what its sender gives. It then names as living those
  // that it reaches; nobody if it reaches all.
  struct Decision {
    uint64_t flags = 0;
    std::vector<bool> living;  // by place in the list of members
  };
  struct Message {
    AgreementId id;
    Kind kind = Kind::vote;
    int from = 0;    // rank of the job
    int round = -1;  // of a vote: of the proposal that it has accepted
    Decision decision;
  };
  struct Agreement {
    std::vector<int> members;  // empty: not begun here
    Decision own;              // what this rank gives
    Done done;
    Clock::time_point deadline;
    std::chrono::milliseconds pause{0};
    uint32_t start = 0;  // how often it was started: what repeats an earlier start ends
    std::optional<Clock::time_point> minority_since;
    int promised = -1;  // rounds before this are over
    int accepted_round = -1;
    Decision accepted;
    std::map<int, Message> votes;      // by rank: the coordinator's
    std::optional<Decision> proposal;  // this rank's own
    std::set<int> acceptances;         // of it
    std::optional<Decision> decided;

    bool under_way() const { return done != nullptr; }
  };

  Agreement& entry(AgreementId id);
  void make_room();
  void step(AgreementId id, Agreement& agreement, bool again);
  // Too few are left.
  void step_in_minority(Agreement& agreement);
  // `again`: also what has been said before. A message brings at most one answer, or they would
  // multiply.
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
  // All of these, the oldest first. Those that are over are kept for members that ask, or try once
  // more, and those that have not begun for the votes that came.
  std::deque<AgreementId> order_;
};

}  // namespace tutti::bootstrap
