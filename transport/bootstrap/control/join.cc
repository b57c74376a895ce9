// The bootstrap on every rank other than 0.
#include <poll.h>

#include <span>

#include "base/error.h"
#include "base/text.h"
#include "transport/bootstrap/control/bootstrap.h"
#include "transport/bootstrap/control/peer_table.h"
#include "transport/bootstrap/control/tree.h"
#include "transport/bootstrap/discovery/search.h"
#include "transport/bootstrap/handshake/socket.h"

namespace tutti::bootstrap {

namespace {

// Extra time for rank 0's error to arrive. Rank 0's timeout may expire later than this rank's, and
// only rank 0's error names the missing ranks.
constexpr std::chrono::seconds kGrace{2};
// Grace period after a broken connection, for the launcher to report how the rank ended.
constexpr std::chrono::milliseconds kTimeToTellJoiner{500};

// Watches the launcher's pipe for deaths while this rank joins the job.
class LauncherWatch final : public EventSource {
 public:
  explicit LauncherWatch(int fd) : pipe_(fd) {}

  int fd() const override { return pipe_.fd(); }
  void handle_event() override {
    pipe_.read([this](const RankEnd& end) { ends_.push_back(end); });
    // A rank that exited successfully may have finished its work in the job. Rank 0 cannot have
    // finished, because it has not sent the table yet.
    for (const RankEnd& end : ends_) {
      if (end.by_signal || end.value != 0 || end.rank == 0) throw death_while_joining(end);
    }
  }
  // Throws if the launcher reports a death shortly, because its report is more informative than a
  // broken connection.
  void hear_last_words() {
    if (pipe_.open()) wait_for(-1, 0, {Deadline::after(kTimeToTellJoiner), this});
  }
  LauncherPipe pipe() { return std::move(pipe_); }
  std::vector<RankEnd> ends() { return std::move(ends_); }

 private:
  LauncherPipe pipe_;
  std::vector<RankEnd> ends_;
};

Fd open_listener(const Job& job, int bootstrap_socket) {
  if (!job.interface.empty()) return listen_on(resolve_interface(job.interface, 0).front());
  SocketAddress address = local_address(bootstrap_socket);
  address.set_port(0);
  return listen_on(address);
}

Error unreported(const std::string& by) {
  return Error(ErrorCode::bootstrap, by + " did not send the table of ranks in time",
               {.cause = "other ranks are missing, or rank 0 is stopped",
                .remedy = "check the output of rank 0"});
}

[[noreturn]] void throw_failure(std::string_view body) {
  FrameReader frame(body);
  throw get_error(frame);
}

// Returns the frame of rank 0 or the parent; throws if it reports a failure.
std::string receive_hello(ByteStream& socket, const Job& job, const std::string& whom,
                          const Deadline& begun_by, LauncherWatch& launcher, InitStats& stats) {
  std::string body;
  int error = 0;
  Transfer transfer = Transfer::timed_out;
  if (wait_for(socket.get(), POLLIN, {begun_by, &launcher})) {
    // A new time limit starts here, because a large table takes time on a slow link.
    const Deadline complete_by = Deadline::after(job.init_timeout);
    transfer = read_frame(socket, body, kMaxTableBytes, {complete_by, &launcher}, &error);
  }
  if (transfer == Transfer::timed_out) throw unreported(whom);
  if (transfer == Transfer::closed) {
    launcher.hear_last_words();
    throw Error(ErrorCode::rank_died,
                cat(whom, " disconnected during startup, before all ranks had connected (",
                    explain_close(error), ")"),
                {.remedy = cat("check the output of ", whom)});
  }
  stats.received.add(sizeof(uint32_t) + body.size());
  if (FrameReader(body).type() == FrameType::failure) throw_failure(body);
  return body;
}

Nonce get_identity(FrameReader& frame) {
  Nonce identity;
  for (uint8_t& byte : identity) byte = frame.get<uint8_t>();
  return identity;
}

Error no_sense() {
  return Error(ErrorCode::bootstrap, "rank 0 sent a malformed table of ranks",
               {.cause = "the ranks run different builds of Tutti"});
}

// Fills in peers, key, fanout and the frame for this rank's children.
void read_table(const Job& job, const std::string& key, const std::string& body, int parent,
                Membership& membership) {
  FrameReader frame(body);
  if (frame.type() != FrameType::table) throw no_sense();
  membership.key = session_key(key, get_identity(frame));
  membership.fanout = frame.get<int32_t>();
  if (!frame.ok() || membership.fanout < 1) throw no_sense();
  membership.peers = shared_table(membership.key, [&] {
    std::vector<PeerInfo> peers = get_peers(frame, job.size);
    if (!frame.ok()) throw no_sense();
    return peers;
  });
  const Tree tree{.rank = job.rank, .size = job.size, .fanout = membership.fanout};
  if (tree.parent() != parent) throw no_sense();
  if (!tree.children().empty()) {
    membership.table = std::make_shared<const std::string>(whole_frame(body));
  }
}

struct Parent {
  int rank = 0;
  ByteStream socket;
};

// Waits until a rank of this job connects as parent. Keeps data connections of ranks that already
// have the table.
Parent wait_for_parent(const Job& job, Membership& membership, const std::string& rank_zero,
                       const Deadline& deadline, LauncherWatch& launcher) {
  Parent parent;
  const auto judge = [&](const Hello& hello) {
    if (hello.purpose == Purpose::data && hello.rank != job.rank) return Decision::accept;
    if (hello.purpose != Purpose::control) return Decision::not_in_job;
    return parent.socket ? Decision::duplicate : Decision::accept;
  };
  const auto welcome = [&](const Hello& hello, ByteStream socket) {
    if (hello.purpose == Purpose::data) {
      membership.early.emplace_back(hello, std::move(socket));
    } else {
      parent = {hello.rank, std::move(socket)};
      count_accepted(membership.stats);
    }
  };
  PollSet set;
  while (!parent.socket) {
    if (deadline.passed()) throw unreported(rank_zero);
    membership.acceptor.watch(set, judge, welcome);
    if (launcher.fd() >= 0) set.add(launcher.fd(), POLLIN, [&](short) { launcher.handle_event(); });
    set.wake_at(Clock::now() + deadline.remaining());
    set.run();
  }
  return parent;
}

PeerInfo introduce(const Job& job, int listener, const std::string& unix_name) {
  PeerInfo self = describe_self();
  self.address = local_address(listener).host();
  self.port = local_address(listener).port();
  self.unix_name = unix_name;
  self.note = job.note;
  self.fabric = job.fabric;
  self.domain = job.domain;
  self.rack = job.rack;
  return self;
}

}  // namespace

Membership join(const Job& job, const std::string& unix_name) {
  const Deadline deadline = Deadline::after(job.init_timeout);
  LauncherWatch launcher(job.launcher_fd);
  auto [socket, key] = find_rank_zero(job, {deadline, &launcher});
  const SocketAddress rank_zero = peer_address(socket.get());
  Fd listener = open_listener(job, socket.get());
  Membership membership;
  InitStats& stats = membership.stats;
  count_connected(stats);
  PeerInfo self = introduce(job, listener.get(), unix_name);
  membership.acceptor = Acceptor(std::move(listener), key, job.size, job.rank);
  if (socket.encrypted()) membership.acceptor.demand_encryption(job.encrypts_data);
  self.more_rails = membership.acceptor.listen_on_rails(job.more_interfaces);
  FrameWriter arrival(FrameType::arrival);
  put(arrival, self);
  const std::string frame = arrival.put_text(job.wire_settings).finish();
  // If the write fails, reading the answer reports it.
  write_exactly(socket, std::as_bytes(std::span(frame)), {deadline, &launcher});
  stats.sent.add(frame.size());

  const std::string whom = rank_zero_at(rank_zero);
  // Deadline::remaining() is limited; the limit of an infinite wait is a century.
  constexpr std::chrono::hours kCentury(24 * 365 * 100);
  const Deadline told_by = Deadline::after(deadline.remaining(kCentury) + kGrace);
  std::string body = receive_hello(socket, job, whom, told_by, launcher, stats);
  Parent parent{0, std::move(socket)};
  FrameReader released(body);
  if (released.type() == FrameType::released) {
    membership.acceptor.set_session_key(session_key(key, get_identity(released)));
    parent.socket.reset();
    parent = wait_for_parent(job, membership, whom, told_by, launcher);
    body = receive_hello(parent.socket, job, cat("rank ", parent.rank), told_by, launcher, stats);
  }
  read_table(job, key, body, parent.rank, membership);
  membership.acceptor.set_session_key(membership.key);
  // Uses the address that is known to work from here.
  membership.rank_zero = membership.peers->at(0);
  membership.rank_zero.address = rank_zero.host();
  membership.rank_zero.port = rank_zero.port();
  membership.links[parent.rank] = Link(std::move(parent.socket));
  membership.encrypted = membership.links[parent.rank].encrypted();
  membership.launcher = launcher.pipe();
  membership.ends = launcher.ends();
  return membership;
}

}  // namespace tutti::bootstrap
