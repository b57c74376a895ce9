#include "transport/bootstrap/membership/agreement.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "transport/bootstrap/membership/separation.h"

namespace tutti::bootstrap {

namespace {

// Intervals between repetitions of a message: the first one, and the longest one.
constexpr std::chrono::milliseconds kFirstRetry{5};
constexpr std::chrono::milliseconds kLongestRetry{200};
// Maximum number of agreements that are kept; above it, the oldest that are not in flight are
// dropped. A member that has not received a decision prevents its communicator from starting the
// next agreement, so one decision per communicator is enough.
constexpr size_t kMostKept = 4096;
// Grace period in a minority, for reports that absent members have ended.
constexpr std::chrono::seconds kTimeToHearMembers{5};

std::string to_bits(const std::vector<bool>& places) {
  std::string bits((places.size() + 7) / 8, '\0');
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i]) bits[i / 8] = static_cast<char>(bits[i / 8] | 1 << i % 8);
  }
  return bits;
}

std::vector<bool> from_bits(std::string_view bits) {
  std::vector<bool> places(bits.size() * 8);
  for (size_t i = 0; i < places.size(); ++i) places[i] = (bits[i / 8] >> i % 8 & 1) != 0;
  return places;
}

}  // namespace

void Agreements::start(AgreementId id, Contribution contribution, std::chrono::milliseconds timeout,
                       Done done) {
  Agreement& agreement = entry(id);
  agreement.members = std::move(contribution.members);
  agreement.own = {.flags = contribution.flags, .living = {}};
  const auto reaches = [this](int rank) { return channel_->reaches(rank); };
  if (contribution.separates && !std::ranges::all_of(agreement.members, reaches)) {
    for (const int rank : agreement.members) agreement.own.living.push_back(reaches(rank));
  }
  agreement.done = std::move(done);
  agreement.deadline = channel_->now() + timeout;
  agreement.pause = kFirstRetry;
  agreement.minority_since.reset();
  if (agreement.decided) return decide(id, agreement, Decision(*agreement.decided));
  repeat(id, ++agreement.start);
}

Agreements::Agreement& Agreements::entry(AgreementId id) {
  const auto [found, is_new] = agreements_.try_emplace(id);
  if (is_new) {
    order_.push_back(id);
    make_room();
  }
  return found->second;
}

void Agreements::make_room() {
  for (size_t looked = 0; order_.size() > kMostKept && looked < kMostKept; ++looked) {
    const AgreementId oldest = order_.front();
    order_.pop_front();
    if (agreements_.at(oldest).in_flight()) {
      order_.push_back(oldest);
    } else {
      agreements_.erase(oldest);
    }
  }
}

void Agreements::repeat(AgreementId id, uint32_t start) {
  const auto found = agreements_.find(id);
  if (found == agreements_.end() || !found->second.in_flight()) return;
  Agreement& agreement = found->second;
  if (agreement.start != start) return;
  step(id, agreement, true);
  if (!agreement.in_flight()) return;
  if (channel_->now() >= agreement.deadline) {
    return fail(agreement, agreement.minority_since ? cut_off(agreement) : overdue(agreement));
  }
  const std::chrono::milliseconds pause = agreement.pause;
  agreement.pause = std::min(2 * pause, kLongestRetry);
  channel_->call_after(pause, [this, id, start] { repeat(id, start); });
}

void Agreements::look_again() {
  std::vector<AgreementId> in_flight;
  for (const auto& [id, agreement] : agreements_) {
    if (agreement.in_flight()) in_flight.push_back(id);
  }
  for (const AgreementId id : in_flight) step(id, agreements_.at(id), true);
}

void Agreements::step(AgreementId id, Agreement& agreement, bool again) {
  if (channel_->has_gone(channel_->own_rank())) {
    fail(agreement, Error(ErrorCode::connection_lost,
                          cat(channel_->name_of(channel_->own_rank()),
                              " was unreachable, and the others have excluded it"),
                          {.rank = channel_->own_rank()}));
    return;
  }
  if (!quorum_of(agreement).decides()) return step_in_minority(agreement);
  agreement.minority_since.reset();
  const int round = coordinator_of(agreement);
  const int coordinator = agreement.members[static_cast<size_t>(round)];
  agreement.promised = std::max(agreement.promised, round);
  if (coordinator == channel_->own_rank()) return coordinate(id, agreement, round, again);
  if (!again) return;
  if (agreement.accepted_round == round) {
    send(id, Kind::accept, coordinator, round, {});
  } else {
    send(id, Kind::vote, coordinator, agreement.accepted_round, vote_of(agreement));
  }
}

void Agreements::step_in_minority(Agreement& agreement) {
  const Clock::time_point now = channel_->now();
  if (!agreement.minority_since) agreement.minority_since = now;
  const bool may_end =
      channel_->may_learn_of_ends() && now < *agreement.minority_since + kTimeToHearMembers;
  if (!may_end) fail(agreement, cut_off(agreement));
}

void Agreements::coordinate(AgreementId id, Agreement& agreement, int round, bool again) {
  const std::vector<int> left = left_of(agreement);
  const int own = channel_->own_rank();
  if (!agreement.proposal) {
    agreement.votes[own] = {
        .id = id, .from = own, .round = agreement.accepted_round, .decision = vote_of(agreement)};
    bool complete = true;
    for (const int rank : left) {
      if (agreement.votes.contains(rank)) continue;
      complete = false;
      if (again) send(id, Kind::ask, rank, round, {});
    }
    if (!complete) return;
    propose(id, agreement, round);
    again = true;
  }
  bool accepted = true;
  for (const int rank : left) {
    if (agreement.acceptances.contains(rank)) continue;
    accepted = false;
    if (again) send(id, Kind::propose, rank, round, *agreement.proposal);
  }
  if (accepted) decide(id, agreement, Decision(*agreement.proposal));
}

// Proposes a result. An earlier coordinator's proposal may have been decided, so the latest
// accepted proposal, if there is one, is proposed again.
void Agreements::propose(AgreementId id, Agreement& agreement, int round) {
  const Message* latest = nullptr;
  Decision fresh{.flags = ~uint64_t{0}, .living = std::vector<bool>(agreement.members.size())};
  for (size_t place = 0; place < agreement.members.size(); ++place) {
    const int rank = agreement.members[place];
    const auto vote = agreement.votes.find(rank);
    if (vote == agreement.votes.end() || channel_->has_gone(rank)) continue;
    if (vote->second.round < 0) {
      fresh.flags &= vote->second.decision.flags;
    } else if (latest == nullptr || latest->round < vote->second.round) {
      latest = &vote->second;
    }
    fresh.living[place] = true;
  }
  fresh.living = separated(agreement, std::move(fresh.living));
  agreement.proposal = latest != nullptr ? latest->decision : fresh;
  agreement.accepted = *agreement.proposal;
  agreement.accepted_round = round;
  agreement.acceptances = {channel_->own_rank()};
}

void Agreements::decide(AgreementId id, Agreement& agreement, const Decision& decision) {
  if (agreement.proposal) {
    for (const int rank : left_of(agreement)) {
      if (rank != channel_->own_rank()) send(id, Kind::decided, rank, 0, decision);
    }
  }
  Agreed agreed{.flags = decision.flags, .living = {}};
  for (size_t place = 0; place < agreement.members.size(); ++place) {
    if (place < decision.living.size() && decision.living[place]) {
      agreed.living.push_back(agreement.members[place]);
    }
  }
  const Done done = std::exchange(agreement.done, nullptr);
  Agreement over;
  over.members = std::move(agreement.members);
  over.decided = decision;
  agreement = std::move(over);
  if (done) done(&agreed, nullptr);
}

void Agreements::fail(Agreement& agreement, const Error& error) {
  const Done done = std::exchange(agreement.done, nullptr);
  if (done) done(nullptr, &error);
}

bool Agreements::on_frame(FrameReader& frame) {
  Message message;
  message.id.communicator = frame.get<uint64_t>();
  message.id.number = frame.get<uint32_t>();
  message.kind = static_cast<Kind>(frame.get<uint8_t>());
  message.from = frame.get<int32_t>();
  message.round = frame.get<int32_t>();
  message.decision.flags = frame.get<uint64_t>();
  message.decision.living = from_bits(frame.get_text());
  if (!frame.ok() || !channel_->is_rank(message.from)) return false;

  const AgreementId id = message.id;
  if (channel_->has_gone(message.from)) return true;
  if (message.kind != Kind::vote && !agreements_.contains(id)) return true;
  Agreement& agreement = entry(id);
  const bool has_begun = !agreement.members.empty();
  if (agreement.decided) {
    if (message.kind != Kind::decided) send(id, Kind::decided, message.from, 0, *agreement.decided);
    return true;
  }
  switch (message.kind) {
    case Kind::vote:
      agreement.votes[message.from] = message;
      break;
    case Kind::propose:
      if (!has_begun || message.round < agreement.promised) return true;
      agreement.promised = agreement.accepted_round = message.round;
      agreement.accepted = message.decision;
      send(id, Kind::accept, message.from, message.round, {});
      return true;
    case Kind::accept:
      if (agreement.proposal && message.round == agreement.accepted_round) {
        agreement.acceptances.insert(message.from);
      }
      break;
    case Kind::decided:
      if (has_begun) decide(id, agreement, message.decision);
      return true;
    case Kind::ask:
      break;
    default:
      return false;
  }
  if (agreement.in_flight()) step(id, agreement, message.kind == Kind::ask);
  return true;
}

void Agreements::send(AgreementId id, Kind kind, int to, int round, const Decision& decision) {
  channel_->send_to(to, FrameWriter(FrameType::agreement)
                            .put(int32_t{to})
                            .put(id.communicator)
                            .put(id.number)
                            .put(static_cast<uint8_t>(kind))
                            .put(int32_t{channel_->own_rank()})
                            .put(int32_t{round})
                            .put(decision.flags)
                            .put_text(to_bits(decision.living))
                            .finish());
}

// ---- for tests

std::string Agreements::state() const {
  FrameWriter text(FrameType::agreement);
  const auto put = [&text](const Decision& decision) {
    text.put(decision.flags).put_text(to_bits(decision.living));
  };
  for (const auto& [id, agreement] : agreements_) {
    text.put(id.communicator).put(id.number).put(agreement.members.size());
    for (const int rank : agreement.members) text.put(rank);
    text.put(agreement.in_flight()).put(agreement.promised).put(agreement.accepted_round);
    put(agreement.own);
    put(agreement.accepted);
    text.put(agreement.votes.size());
    for (const auto& [rank, vote] : agreement.votes) {
      text.put(rank).put(vote.round);
      put(vote.decision);
    }
    put(agreement.proposal.value_or(Decision()));
    text.put(agreement.proposal.has_value()).put(agreement.acceptances.size());
    for (const int rank : agreement.acceptances) text.put(rank);
    put(agreement.decided.value_or(Decision()));
    text.put(agreement.decided.has_value());
  }
  return text.finish();
}

// ---- membership

int Agreements::coordinator_of(const Agreement& agreement) const {
  const auto first = std::ranges::find_if(agreement.members,
                                          [this](int rank) { return !channel_->has_gone(rank); });
  return static_cast<int>(first - agreement.members.begin());
}

std::vector<int> Agreements::left_of(const Agreement& agreement) const {
  std::vector<int> left;
  std::ranges::copy_if(agreement.members, std::back_inserter(left),
                       [this](int rank) { return !channel_->has_gone(rank); });
  return left;
}

Quorum Agreements::quorum_of(const Agreement& agreement) const {
  return Quorum::of(
      agreement.members, [this](int rank) { return channel_->has_gone(rank); },
      [this](int rank) { return channel_->has_ended(rank); });
}

// Returns `living` without the members that leave because some members cannot reach each other.
std::vector<bool> Agreements::separated(const Agreement& agreement,
                                        std::vector<bool> living) const {
  const std::vector<int>& members = agreement.members;
  std::vector<std::pair<size_t, size_t>> broken;
  for (size_t own = 0; own < members.size(); ++own) {
    const auto vote = agreement.votes.find(members[own]);
    if (vote == agreement.votes.end() || vote->second.round >= 0) continue;
    const std::vector<bool>& reached = vote->second.decision.living;
    for (size_t place = 0; place < std::min(members.size(), reached.size()); ++place) {
      if (!reached[place]) broken.emplace_back(own, place);
    }
  }
  if (broken.empty()) return living;
  std::vector<std::string_view> hosts;
  for (const int rank : members) hosts.push_back(channel_->host_of(rank));
  return separate(std::move(living), hosts, broken);
}

Error Agreements::cut_off(const Agreement& agreement) const {
  std::string vanished;
  for (const int rank : agreement.members) {
    if (!channel_->has_gone(rank) || channel_->has_ended(rank)) continue;
    vanished += cat(vanished.empty() ? "" : ", ", channel_->name_of(rank));
  }
  return Error(
      ErrorCode::connection_lost,
      cat(channel_->name_of(channel_->own_rank()), " is cut off from ", vanished, ": only ",
          left_of(agreement).size(), " of ", agreement.members.size(), " members can be reached"),
      {.cause = "the other part of the job may continue, so this part must not",
       .remedy = "check the network; if `tutti run` started the ranks and sees that all others "
                 "have ended, any number may continue"});
}

Error Agreements::overdue(const Agreement& agreement) const {
  std::string waiting;
  const int round = coordinator_of(agreement);
  const int coordinator = agreement.members[static_cast<size_t>(round)];
  if (coordinator != channel_->own_rank()) {
    waiting = channel_->name_of(coordinator) + ", which collects the votes";
  } else {
    for (const int rank : left_of(agreement)) {
      const bool heard = agreement.proposal ? agreement.acceptances.contains(rank)
                                            : agreement.votes.contains(rank);
      if (!heard) waiting += cat(waiting.empty() ? "" : ", ", channel_->name_of(rank));
    }
  }
  return Error(ErrorCode::timeout,
               cat(channel_->name_of(channel_->own_rank()),
                   " timed out in an agreement; waiting for ", waiting),
               {.cause = "a rank does not call agree() or shrink(), or is stopped",
                .remedy = "call it on every remaining rank"});
}

}  // namespace tutti::bootstrap
