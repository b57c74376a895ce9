// Repairs the tree after a rank on the path between others has gone, and makes floods reach all.
//
// Each rank that has lost its parent connects to the parent that tree.h assigns among the remaining
// ranks. The new parent accepts any rank of the job, because it might not know yet which ranks have
// gone. A rank that should have moved here but has not may have died together with its parent, the
// only rank that would have noticed. So the new parent tries to connect to that rank until the rank
// has connected or its listener is gone. Over a new link each side repeats everything that was ever
// flooded, because the broken link may have lost some. A rank does not forward what it already has,
// so floods end on any graph of links.
//
// A rank that was declared dead but may live is excluded permanently: its links are closed and
// refused, and its messages are ignored. Otherwise the ranks of a host whose network heals would
// make the others exclude each other. So each part of a partitioned job considers the other parts
// dead, and agreements succeed in at most one part (quorum.h).
//
// A link that was reset is re-established in the same way. If a link went silent and the two ranks
// have several rails, it is re-established over the next rail before either rank considers the
// other dead.
#include <algorithm>
#include <utility>

#include "base/network_timeout.h"
#include "base/text.h"
#include "transport/bootstrap/control/control_frames.h"
#include "transport/bootstrap/control/control_service.h"
#include "transport/bootstrap/handshake/socket.h"

namespace tutti::bootstrap {

namespace {

// Number of aborts that are remembered. A partition that lasts for more aborts than this could
// leave ranks waiting on a communicator whose abort was forgotten.
constexpr size_t kMostAbortsKept = 1024;
// Grace period for orphaned ranks to connect to their new parent. The parent repeats its search for
// missing ones at the same interval.
constexpr std::chrono::milliseconds kTimeToMove{100};

}  // namespace

// Looks for children that should move here and, if the parent has gone, connects to a new parent. A
// leaving rank does neither, because it has nothing left to send.
void ControlService::relink() {
  if (!all_linked_ || leave_by_) return;
  look_for_children_later();
  if (parent_ < 0 || !(is_lost(parent_) || has_died(parent_))) return;
  parent_ = tree_.parent_of(tree_.rank, Departed{*this});
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
  const Departed gone{*this};
  for (int rank = tree_.rank + 1; rank < tree_.size; ++rank) {
    if (gone(rank) || !is_lost(rank) || tree_.parent_of(rank, gone) != tree_.rank) continue;
    if (!sought_.insert(rank).second) continue;
    Hello hello = make_hello(Purpose::control);
    hello.number = 1;  // a single failed attempt proves nothing
    link_connector_.start(peer(rank), rank, hello, describe(rank));
  }
}

// Records a child that connected, which proves that it is alive.
void ControlService::found_child(int rank) {
  sought_.erase(rank);
  look_for_children_later();
}

// Connects to `rank` as parent. The connection counts as a replacement: it is tried for
// TUTTI_NETWORK_TIMEOUT, skipping silent rails. Frames are queued until the link is up.
void ControlService::connect_parent(int rank) {
  Link& link = links_[rank] = Link();
  tell_all_known(link);
  Hello hello = make_hello(Purpose::relink);
  hello.number = 1;
  link_connector_.start(peer(rank), rank, hello, describe(rank), detours_[rank]);
}

// Tries to re-establish a link. After a reset both ends may be alive, and a silent network may be
// one of several rails. The rank further down in the tree reconnects. The upper one waits for it
// and, unless the network is silent, probes whether it still listens. Returns false if there is
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

// Returns true if this rank doubts a death that `teller` reported. A rank that lost its link to
// another one declares that rank dead, connects here instead, and reports the death. If this rank
// has a link to the accused rank as well, that link decides: if it still works after the network
// timeout, the two ranks cannot communicate, and the teller is excluded.
bool ControlService::disputes(const Death& death, int teller) {
  if (death.certain || !moved_here_.contains(teller) || !is_linked(death.rank)) return false;
  settle_dispute_later(death.rank, teller);
  return true;
}

// Decides a dispute after the network timeout. A link that is being re-established does not decide
// yet: it either connects, or its rank dies.
void ControlService::settle_dispute_later(int accused, int teller) {
  after(2 * network_timeout(), [this, accused, teller] {
    for (const int rank : {accused, teller}) {
      if (has_died(rank) || left_[rank] || ends_.contains(rank)) return;
    }
    if (!is_linked(accused) || !is_linked(teller)) return settle_dispute_later(accused, teller);
    record_death({teller, cat(describe(teller), " is excluded from the job: it cannot reach ",
                              describe(accused), ", which ", describe(tree_.rank), " can reach")},
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
  clients_.abort(communicator, error);  // after the flood, so that no peer waits for this client
  if (aborts_.size() > kMostAbortsKept) aborts_.pop_front();
}

}  // namespace tutti::bootstrap
