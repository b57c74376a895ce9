// How the tree mends itself when a rank has gone that others were linked through, and how what is
// told to all reaches them all the same.
//
// Each rank that has lost its parent connects to the one that tree.h gives it among those that are
// left. That one takes any rank of the job: it need not have heard yet of who has gone. Whoever
// should have come to a rank, and has not, may have died together with its parent, which alone
// would have seen it: the rank tries to connect to it until it comes or its listener is gone. Over
// a new link each side tells the other all that was ever flooded, since some of it may have been on
// the broken one; what a rank has heard before it does not tell on, so floods end in whatever graph
// the links are meanwhile.
//
// A rank that was taken for dead and may live is given up for good: its links are closed and
// refused, and what it says counts for nothing. Otherwise the ranks of a host whose network heals
// would make the others give each other up. So each part of a job that was cut takes all other
// parts for dead, and agreements succeed in one of them (quorum.h).
//
// A link that was reset is made anew in the same way, and one that went silent over the next rail
// where two ranks have several, before either takes the other for dead.
#include <algorithm>
#include <utility>

#include "base/network_timeout.h"
#include "base/text.h"
#include "transport/bootstrap/control/control_frames.h"
#include "transport/bootstrap/control/control_service.h"
#include "transport/bootstrap/handshake/socket.h"

namespace tutti::bootstrap {

namespace {

// Of communicators that were aborted: one that ranks cut off from each other for as many aborts
// still wait on would not hear of its own.
constexpr size_t kMostAbortsKept = 1024;
// For those that have lost their parent to come, and between looks at those that have not.
constexpr std::chrono::milliseconds kTimeToMove{100};

}  // namespace

// A rank that leaves looks for no other parent: it has nothing to tell any more.
void ControlService::relink() {
  if (!all_linked_ || leave_by_) return;
  look_for_children_later();
  if (parent_ < 0 || !(is_lost(parent_) || has_died(parent_))) return;
  parent_ = tree_.parent_of(tree_.rank, Gone{*this});
  if (parent_ >= 0) connect_parent(parent_);
}

bool ControlService::is_lost(int neighbour) const {
  const auto link = links_.find(neighbour);
  return link == links_.end() || (link->second.was_connected() && !link->second.connected());
}

void ControlService::look_for_children_later() {
  if (std::exchange(looks_for_children_, true)) return;
  after(kTimeToMove, [this] {
    looks_for_children_ = false;
    look_for_children();
  });
}

void ControlService::look_for_children() {
  if (leave_by_) return;
  const Gone gone{*this};
  for (int rank = tree_.rank + 1; rank < tree_.size; ++rank) {
    if (gone(rank) || !is_lost(rank) || tree_.parent_of(rank, gone) != tree_.rank) continue;
    if (!sought_.insert(rank).second) continue;
    Hello hello = make_hello(Purpose::control);
    hello.number = 1;  // one failure is no answer
    link_connector_.start(peer(rank), rank, hello, describe(rank));
  }
}

// The connection has shown that it lives.
void ControlService::found_child(int rank) {
  sought_.erase(rank);
  look_for_children_later();
}

// As a connection that takes the place of another it is tried for TUTTI_NETWORK_TIMEOUT, passing
// over rails that went silent. What is sent before the link is there waits for it.
void ControlService::connect_parent(int rank) {
  Link& link = links_[rank] = Link();
  tell_all_known(link);
  Hello hello = make_hello(Purpose::relink);
  hello.number = 1;
  link_connector_.start(peer(rank), rank, hello, describe(rank), detours_[rank]);
}

// Both ends of a link that was reset may live, and where they have several rails a network that
// went silent may be one of several: the lower one in the tree connects again, and the other one
// waits for it and, unless the network is silent, looks whether it still listens. False: there is
// nothing to try.
bool ControlService::renew(int neighbour, const std::string& how) {
  const int error = links_.at(neighbour).error();
  const size_t rails = std::min(peer(tree_.rank).rails(), peer(neighbour).rails());
  const bool silent = is_silence(error) && rails > 1 && !leave_by_;
  if (!all_linked_ || ends_.contains(neighbour) || !(is_reset(error) || silent)) return false;
  if (silent) ++detours_[neighbour];
  if (neighbour == parent_) {
    connect_parent(neighbour);
    return true;
  }
  if (!silent) look_for_children_later();
  const int number = ++breaks_[neighbour];
  after(2 * network_timeout(), [this, neighbour, number, how] {
    const bool renewed = breaks_[neighbour] != number || links_.at(neighbour).connected();
    if (!renewed && !left_[neighbour]) on_break(neighbour, how);
  });
  return true;
}

void ControlService::adopt(int rank, ByteStream socket) {
  set_user_timeout(socket.get());
  Link& link = links_[rank] = Link(std::move(socket));
  moved_here_.insert(rank);
  tell_all_known(link);
}

bool ControlService::is_given_up(int rank) const {
  return has_died(rank) && !clients_.has_certainly_died(rank);
}

// A rank that has lost its link to another one takes that for dead, moves here, and says so. If
// this rank has a link to it as well, that link tells within the network timeout which is true. If
// it lasts, the two cannot talk to each other, and the one that has moved is given up.
bool ControlService::disputes(const Death& death, int teller) {
  if (death.certain || !moved_here_.contains(teller) || !is_linked(death.rank)) return false;
  settle_dispute_later(death.rank, teller);
  return true;
}

// A link that is being renewed meanwhile says nothing yet: it connects, or its rank dies.
void ControlService::settle_dispute_later(int accused, int teller) {
  after(2 * network_timeout(), [this, accused, teller] {
    for (const int rank : {accused, teller}) {
      if (has_died(rank) || left_[rank] || ends_.contains(rank)) return;
    }
    if (!is_linked(accused) || !is_linked(teller)) return settle_dispute_later(accused, teller);
    record_death({teller, cat(describe(teller), " is given up: it cannot reach ", describe(accused),
                              ", which ", describe(tree_.rank), " does reach")},
                 -1);
  });
}

bool ControlService::is_linked(int rank) const {
  const auto link = links_.find(rank);
  return link != links_.end() && link->second.connected();
}

void ControlService::tell_all_known(Link& link) {
  for (const Death& death : clients_.all_deaths()) link.send(death_frame(death));
  for (const int rank : goodbyes_) link.send(goodbye_frame(rank));
  for (const auto& [communicator, frame] : aborts_) link.send(frame);
}

void ControlService::flood_goodbye(int rank, int except) {
  left_[rank] = true;
  if (goodbyes_.insert(rank).second) flood(goodbye_frame(rank), except);
  agreements_.look_again();
}

void ControlService::flood_abort(uint64_t communicator, const Error& error, int except) {
  if (std::ranges::find(aborts_, communicator, &decltype(aborts_)::value_type::first) !=
      aborts_.end()) {
    return;
  }
  aborts_.emplace_back(communicator, abort_frame(communicator, error));
  flood(aborts_.back().second, except);
  clients_.abort(communicator, error);  // nobody else waits for what its client does
  if (aborts_.size() > kMostAbortsKept) aborts_.pop_front();
}

}  // namespace tutti::bootstrap
