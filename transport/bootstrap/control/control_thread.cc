// The control thread, which handles links, frames, deaths and leaving.
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "base/network_timeout.h"
#include "base/text.h"
#include "transport/bootstrap/control/control_frames.h"
#include "transport/bootstrap/control/control_service.h"
#include "transport/bootstrap/control/peer_table.h"
#include "transport/bootstrap/handshake/socket.h"

namespace tutti::bootstrap {

namespace {

// Grace period after a broken link, for the launcher to report how the rank ended.
constexpr std::chrono::milliseconds kReportTime{500};
// Grace periods after the launcher has reported that a rank exited. The rank's goodbye may still be
// in transit, and so may the report of a neighbour whose link to the rank broke; both are late on
// busy, slow links. After exit code 0 the period is kTimeForGoodbye. After another code it is
// kTimeForFailure, because a rank that failed has most likely not said goodbye. Both periods are
// extended by a time per rank of the job.
constexpr std::chrono::seconds kTimeForGoodbye{60};
constexpr std::chrono::seconds kTimeForFailure{10};
constexpr std::chrono::milliseconds kTimeForGoodbyePerRank{10};
// Grace period after a death, for others that died together with that rank.
constexpr std::chrono::milliseconds kTimeForOthers{50};
constexpr std::chrono::seconds kTimeToLeave{2};
// Grace period for neighbours to receive the goodbye and close their end.
constexpr std::chrono::seconds kTimeToArrive{5};
constexpr std::chrono::milliseconds kTimeToPart{200};
// Maximum number of questions sent on a link since anything arrived from the other side. In a
// larger job the maximum is the number of ranks, because all ranks may be asked at once. The system
// buffers the questions.
constexpr size_t kMostQuestions = 1024;

}  // namespace

void ControlService::serve() {
  set_log_rank(tree_.rank);
  ::pthread_setname_np(::pthread_self(), "tutti-control");
  try {
    tell_linked();
    // Frames right behind the table may already be buffered in the link.
    for (const auto& [neighbour, link] : links_) on_link(neighbour, POLLIN);
    for (auto& [hello, socket] : membership_.early) welcome(hello, std::move(socket));
    membership_.early.clear();
    for (const RankEnd& end : membership_.ends) on_launcher_line(end);
    while (!finished()) turn();
    part();
  } catch (const std::exception& error) {
    // Without the channel no rank would learn of failures any more.
    const Error failure(ErrorCode::internal, cat("the control channel of ", describe(rank()),
                                                 " failed: ", error.what()));
    log(LogLevel::error, failure.what());
    clients_.abort_all(failure);
    agreements_.abandon();
    const std::lock_guard lock(mutex_);
    failure_ = failure;
    over_ = true;
    commands_.clear();
    linked_.notify_all();
  }
}

void ControlService::turn() {
  run_commands();
  run_timers();
  if (finished()) return;
  set_.add(wake_fd_.get(), POLLIN, [this](short) {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(wake_fd_.get(), &count, sizeof(count));
  });
  membership_.acceptor.watch(
      set_, [this](const Hello& hello) { return judge(hello); },
      [this](const Hello& hello, ByteStream socket) { welcome(hello, std::move(socket)); });
  membership_.launcher.watch(set_, [this](const RankEnd& end) { on_launcher_line(end); });
  descriptors_.watch(set_);
  watch_connector();
  watch_linking();
  watch_links();
  watchers_.watch(set_);
  // Last, because the calls above may add timers.
  for (const auto& [when, command] : timers_) set_.wake_at(when);
  if (leave_by_) set_.wake_at(*leave_by_);
  set_.run();
}

void ControlService::run_commands() {
  std::vector<Command> commands;
  {
    std::lock_guard lock(mutex_);
    commands.swap(commands_);
  }
  for (const Command& command : commands) command();
}

void ControlService::run_timers() {
  const Clock::time_point now = Clock::now();
  const auto due = std::stable_partition(timers_.begin(), timers_.end(),
                                         [now](const auto& timer) { return timer.first > now; });
  const std::vector<std::pair<Clock::time_point, Command>> ready(due, timers_.end());
  timers_.erase(due, timers_.end());
  for (const auto& [when, command] : ready) command();
}

void ControlService::after(std::chrono::milliseconds delay, Command command) {
  timers_.emplace_back(Clock::now() + delay, std::move(command));
}

// ---- links

void ControlService::watch_connector() {
  connector_.watch(
      set_,
      [this](uint64_t communicator, int rank, int lane, ByteStream socket) {
        take_as_reached(rank);
        clients_.opened(communicator, rank, lane, std::move(socket));
      },
      [this](uint64_t communicator, int rank, const Error& error) {
        if (!clients_.attached(communicator)) return;
        if (error.code() != ErrorCode::system) {
          return suspect_later(communicator, rank, error.what());
        }
        // The cause is on this host, so the peer need not be waited for.
        flood_abort(communicator,
                    Error(error.code(), cat(describe(tree_.rank), ": ", error.what()),
                          {.rank = tree_.rank}),
                    -1);
      });
  prober_.watch(
      set_, [this](uint64_t, int rank, int, const ByteStream&) { take_as_reached(rank); },
      [this](uint64_t, int rank, const Error& error) {
        // A failure on this host proves nothing about the peer.
        if (error.code() == ErrorCode::system) return take_as_reached(rank);
        probes_[rank] = Probe::failed;
      });
}

void ControlService::watch_links() {
  for (auto& [neighbour, link] : links_) {
    if (link.connected() && is_given_up(neighbour)) link.close();
    if (!link.connected()) continue;
    const short events = link.wants_to_write() ? POLLIN | POLLOUT : POLLIN;
    set_.add(link.fd(), events,
             [this, neighbour = neighbour](short revents) { on_link(neighbour, revents); });
  }
}

void ControlService::on_link(int neighbour, short revents) {
  Link& link = links_.at(neighbour);
  if (!link.connected()) return;
  if ((revents & POLLOUT) != 0) {
    link.flush();
    tell_linked();
  }
  if ((revents & ~POLLOUT) == 0) return;
  const auto take = [this, neighbour](std::string_view body) { return on_frame(neighbour, body); };
  if (!link.receive(take, kMaxFrameBytes)) on_link_end(neighbour);
}

// ---- frames

void ControlService::flood(const std::string& frame, int except) {
  for (auto& [neighbour, link] : links_) {
    if (neighbour != except && !is_given_up(neighbour)) link.send(frame);
  }
}

// Sends a frame to the next rank on the way to `to`. Questions are repeated, so one may be lost
// while the tree has a gap. A leaving rank still routes for the ranks below it.
void ControlService::route(int to, const std::string& frame) {
  const size_t most = std::max(kMostQuestions, static_cast<size_t>(tree_.size));
  for (const int hop : {tree_.next_hop(to, Departed{*this}), tree_.next_hop(to)}) {
    if (is_lost(hop)) continue;
    Link& link = links_.at(hop);
    return is_repeated(frame) ? link.ask(frame, most) : link.send(frame);
  }
}

bool ControlService::on_frame(int neighbour, std::string_view body) {
  if (is_given_up(neighbour)) return true;
  FrameReader frame(body);
  switch (frame.type()) {
    case FrameType::linked: {
      linked_children_.insert(neighbour);
      membership_.stats.received.add(sizeof(uint32_t) + body.size());
      tell_linked();
      return tree_.is_child(neighbour);
    }
    case FrameType::goodbye: {
      const auto rank = frame.get<int32_t>();
      if (!frame.ok() || !is_rank(rank)) return false;
      flood_goodbye(rank, neighbour);
      return true;
    }
    case FrameType::death: {
      const auto rank = frame.get<int32_t>();
      const bool by_itself = frame.get<uint8_t>() != 0;
      const bool certain = frame.get<uint8_t>() != 0;
      const std::string text = frame.get_text();
      if (!frame.ok() || !is_rank(rank)) return false;
      const Death death{rank, text, by_itself, certain};
      if (!disputes(death, neighbour)) record_death(death, neighbour);
      return true;
    }
    case FrameType::abort: {
      const auto communicator = frame.get<uint64_t>();
      const Error error = get_error(frame);
      if (!frame.ok()) return false;
      flood_abort(communicator, error, neighbour);
      return true;
    }
    case FrameType::question:
    case FrameType::answer: {
      const auto communicator = frame.get<uint64_t>();
      const auto from = frame.get<int32_t>();
      const auto to = frame.get<int32_t>();
      const auto call = frame.get<uint32_t>();
      const std::string text = frame.type() == FrameType::answer ? frame.get_text() : std::string();
      if (!frame.ok() || !is_rank(from) || !is_rank(to)) return false;
      if (to != tree_.rank) {
        route(to, whole_frame(body));
      } else if (frame.type() == FrameType::question) {
        deliver_question(communicator, from, call);
      } else {
        clients_.answer(communicator, from, call, text);
      }
      return true;
    }
    case FrameType::agreement:
    case FrameType::activity_question:
    case FrameType::activity: {
      const auto to = frame.get<int32_t>();
      if (!frame.ok() || !is_rank(to)) return false;
      if (to == tree_.rank) return take_frame(frame);
      route(to, whole_frame(body));
      return true;
    }
    default:
      return false;
  }
}

bool ControlService::take_frame(FrameReader& frame) {
  switch (frame.type()) {
    case FrameType::activity_question:
      return watchers_.on_question(frame);
    case FrameType::activity:
      return watchers_.on_activity(frame);
    default:
      return agreements_.on_frame(frame);
  }
}

void ControlService::deliver_question(uint64_t communicator, int from, uint32_t call) {
  if (const auto answer = clients_.question(communicator, from, call)) send_answer(*answer);
}

void ControlService::send_answer(const ClientTable::Answer& answer) {
  if (answer.to == tree_.rank) {
    clients_.answer(answer.communicator, tree_.rank, answer.call, answer.text);
    return;
  }
  route(answer.to, FrameWriter(FrameType::answer)
                       .put(answer.communicator)
                       .put(int32_t{tree_.rank})
                       .put(int32_t{answer.to})
                       .put(answer.call)
                       .put_text(cut_text(answer.text))
                       .finish());
}

// ---- deaths

void ControlService::on_link_end(int neighbour) {
  Link& link = links_.at(neighbour);
  const int error = link.error();
  link.close();
  if (left_[neighbour]) return relink();
  const std::string how =
      is_silence(error)
          ? cat("is no longer reachable (", explain_close(error), "): host ", peer(neighbour).host,
                " is down, or the network to it is; the host runs ", ranks_beside(neighbour))
          : cat("vanished: its connection broke (", explain_close(error), ")");
  if (!renew(neighbour, how)) on_break(neighbour, how);
}

// Formats the ranks on the host of `rank`: "rank 2 alone", "ranks 2,3,5-9".
std::string ControlService::ranks_beside(int rank) const {
  std::vector<int> ranks;
  for (int other = 0; other < size(); ++other) {
    if (peer(other).host_id == peer(rank).host_id) ranks.push_back(other);
  }
  if (ranks.size() == 1) return cat("rank ", rank, " alone");
  return cat("ranks ", rank_ranges(ranks));
}

void ControlService::on_break(int rank, const std::string& how) {
  const auto declare = [this, rank, how] {
    if (links_.at(rank).connected()) return;  // the link has been re-established
    const auto end = ends_.find(rank);
    if (end != ends_.end()) {
      declare_end(end->second);
    } else {  // a rank that vanishes after another's death may have exited because of it
      record_death({rank, cat(describe(rank), " ", how), clients_.deaths().has_value()}, -1);
    }
  };
  if (ends_.contains(rank) || !membership_.launcher.open()) {
    declare();
  } else {
    after(kReportTime, declare);
  }
}

void ControlService::on_launcher_line(const RankEnd& end) {
  if (end.rank < 0 || end.rank >= tree_.size || end.rank == tree_.rank) return;
  ends_[end.rank] = end;
  const auto link = links_.find(end.rank);
  const bool link_ended = link != links_.end() && !link->second.connected();
  const auto declare = [this, end] { declare_end(end); };
  if (end.by_signal || link_ended) {
    declare();
  } else {
    const auto time = end.value == 0 ? kTimeForGoodbye : kTimeForFailure;
    after(time + tree_.size * kTimeForGoodbyePerRank, declare);
  }
}

// Returns true if a rank on the way to `rank` has left or died, so that a goodbye may have been
// lost.
bool ControlService::cut_off_from(int rank) const {
  Tree at = tree_;
  for (at.rank = at.next_hop(rank); at.rank != rank; at.rank = at.next_hop(rank)) {
    if (left_[at.rank] || has_died(at.rank)) return true;
  }
  return false;
}

// Handles the end of a rank. A rank that exited successfully counts as having left if its goodbye
// had no route.
void ControlService::declare_end(const RankEnd& end) {
  if (!end.by_signal && end.value == 0 && cut_off_from(end.rank)) {
    left_[end.rank] = true;
    return relink();
  }
  record_death({end.rank, cat(describe(end.rank), " ", end.text()), end.by_itself(), true}, -1);
}

// Records and floods a death. The death is sent before any of its consequences, so that ranks of
// the tree learn the cause first.
void ControlService::record_death(const Death& death, int told_by) {
  if (left_[death.rank]) return relink();
  if (!clients_.rank_died(death)) return;
  died_[death.rank] = true;
  flood(death_frame(death), told_by);
  relink();
  agreements_.look_again();
  connect_cut_off(death.rank);
  if (gathering_deaths_) return;
  gathering_deaths_ = true;
  after(kTimeForOthers, [this] { report_deaths(); });
}

void ControlService::report_deaths() {
  gathering_deaths_ = false;
  clients_.report_deaths();
  const std::lock_guard lock(mutex_);
  if (!all_linked_) failure_ = clients_.deaths();
  linked_.notify_all();
}

// ---- leaving

void ControlService::leave() {
  leave_by_ = Clock::now() + kTimeToLeave;
  flood_goodbye(tree_.rank, -1);
}

// Returns true if this rank may leave. Until kTimeToLeave has passed, it serves the ranks below it,
// which would otherwise be cut off, until they have gone as well. A child that said goodbye may
// still serve its own subtree, so the child has gone only when its link is closed.
bool ControlService::finished() const {
  if (!leave_by_) return false;
  if (Clock::now() >= *leave_by_) return true;
  if (!cut_off_.empty()) return false;
  return std::ranges::all_of(links_, [this](const auto& entry) {
    const auto& [neighbour, link] = entry;
    // A rank that is not connected yet still has to learn why the job ends before it began.
    if (link.wants_to_write() || !link.was_connected()) return false;
    if (has_died(neighbour)) return true;
    // A broken link to a neighbour that has not left may be re-established, and then carries the
    // goodbye.
    return link.connected() ? neighbour < tree_.rank : left_[neighbour].load();
  });
}

// Closes the links. Closing with unread bytes would reset the connection and could lose the
// goodbye. So this rank shuts down its sending side, waits until everything has arrived, and then
// waits briefly for the others to close.
void ControlService::part() {
  constexpr std::chrono::milliseconds kLook{5};
  const auto ignore = [](std::string_view) { return true; };
  const Deadline arrived = Deadline::after(kTimeToArrive);
  const Deadline closed = Deadline::after(kTimeToPart);
  for (auto& [neighbour, link] : links_) link.shut_down();
  for (auto& [neighbour, link] : links_) {
    while (link.connected() && !(closed.passed() && (link.arrived() || arrived.passed()))) {
      if (!wait_for(link.fd(), POLLIN, Deadline::after(kLook))) continue;
      if (!link.receive(ignore, kMaxFrameBytes)) link.close();
    }
  }
}

}  // namespace tutti::bootstrap
