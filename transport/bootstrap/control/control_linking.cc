// Builds the tree: each rank connects to its children and forwards the table. Also decides which
// later connections are accepted.
#include <algorithm>

#include "base/text.h"
#include "transport/bootstrap/control/control_service.h"
#include "transport/bootstrap/control/peer_table.h"
#include "transport/bootstrap/handshake/socket.h"

namespace tutti::bootstrap {

void ControlService::start_linking() {
  for (const int child : tree_.children()) {
    Link& link = links_[child];
    link.send_first(membership_.table);
    link.flush();  // rank 0's links are already connected
    if (link.connected()) continue;
    connect_link(child);
    count_connected(membership_.stats);
    membership_.stats.sent.add(membership_.table->size());
  }
  membership_.table.reset();
  for (auto& [neighbour, link] : links_) {
    if (link.connected()) set_user_timeout(link.fd());
  }
}

void ControlService::connect_link(int rank) {
  link_connector_.start(peer(rank), rank, make_hello(Purpose::control), describe(rank));
}

void ControlService::watch_linking() {
  link_connector_.watch(
      set_,
      [this](uint64_t, int rank, int, ByteStream socket) {
        if (cut_off_.erase(rank) != 0) return tell_cut_off(Link(std::move(socket)));
        if (sought_.contains(rank)) return found_child(rank);
        Link& link = links_.at(rank);
        set_user_timeout(socket.get());
        link.connect(std::move(socket));
        link.flush();
        tell_linked();
      },
      [this](uint64_t, int rank, const Error& error) {
        if (sought_.erase(rank) != 0 && !is_lost(rank)) return;  // the rank has connected meanwhile
        if (cut_off_.erase(rank) == 0) on_unreachable(rank, error);
      });
}

void ControlService::tell_linked() {
  // A child may have left again before the last child was linked.
  const auto is_there = [this](const auto& entry) {
    const auto& [neighbour, link] = entry;
    return link.was_connected() && !link.wants_to_write() && all_linked_below(neighbour);
  };
  std::unique_lock lock(mutex_);
  if (all_linked_ || !std::ranges::all_of(links_, is_there)) return;
  if (tree_.rank != 0 && !tree_.children().empty()) {  // leaves send no such frame
    const std::string frame = FrameWriter(FrameType::linked).finish();
    links_.at(tree_.parent()).send(frame);
    membership_.stats.sent.add(frame.size());
  }
  all_linked_ = true;
  linked_.notify_all();
}

bool ControlService::all_linked_below(int child) const {
  const Tree below{.rank = child, .size = tree_.size, .fanout = tree_.fanout};
  return !tree_.is_child(child) || below.children().empty() || linked_children_.contains(child);
}

// Handles a child that arrived at rank 0, but to which this rank could not connect a link.
void ControlService::on_unreachable(int child, const Error& error) {
  if (error.code() == ErrorCode::system) {  // the cause is on this host
    if (all_linked_) throw error;           // this failure isolates this rank from the others
    const std::lock_guard lock(mutex_);
    failure_ = error;
    linked_.notify_all();
    return;
  }
  links_[child].close();
  if (left_[child]) return relink();
  const bool gone = error.code() == ErrorCode::connection_lost;
  on_break(child, cat(gone ? "vanished: " : "is unreachable: ", error.what()));
}

// Connects to the ranks below a child that died before it forwarded the table. They wait for the
// table, which no other rank sends them. Ranks that have the table close the connection.
void ControlService::connect_cut_off(int child) {
  if (all_linked_below(child)) return;
  for (int rank = child + 1; rank < tree_.size; ++rank) {
    if (tree_.next_hop(rank) != child) continue;
    if (cut_off_.insert(rank).second) connect_link(rank);
  }
}

void ControlService::tell_cut_off(Link link) const {
  link.send(failure_frame(clients_.deaths().value()));
}

// ---- later connections

Decision ControlService::judge(const Hello& hello) const {
  switch (hello.purpose) {
    case Purpose::bootstrap:
      // A rank that left and joins again retries until this rank has rejoined, too.
      if (tree_.rank != 0) return Decision::not_in_job;
      return left_[hello.rank] ? Decision::ignore : Decision::duplicate;
    case Purpose::data:
      return hello.rank == tree_.rank ? Decision::not_in_job : Decision::accept;
    case Purpose::control:  // the peer tests this listener, or reports a death
      return Decision::accept;
    case Purpose::relink:
      if (is_given_up(hello.rank)) return Decision::given_up;
      return all_linked_ ? Decision::accept : Decision::ignore;
    case Purpose::watch:
      return watchers_.has_room() ? Decision::accept : Decision::ignore;
    case Purpose::descriptors:
      break;
  }
  return Decision::not_in_job;
}

void ControlService::welcome(const Hello& hello, ByteStream socket) {
  if (hello.purpose == Purpose::relink) return adopt(hello.rank, std::move(socket));
  if (hello.purpose == Purpose::watch) return watchers_.admit(std::move(socket));
  if (hello.purpose != Purpose::data) return;
  clear_keepalive(socket.get());
  take_as_reached(hello.rank);
  clients_.connection(hello.communicator, hello.rank, hello.lane, hello.number, std::move(socket));
}

}  // namespace tutti::bootstrap
