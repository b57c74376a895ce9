// Rank 0's side of the bootstrap.
#include <fcntl.h>

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "transport/bootstrap/bootstrap.h"
#include "transport/bootstrap/peer_table.h"
#include "transport/bootstrap/rendezvous_file.h"
#include "transport/bootstrap/socket.h"
#include "transport/bootstrap/tree.h"

namespace tutti::bootstrap {

namespace {

constexpr std::chrono::seconds kSayWhoIsMissing{10};

// The launcher's listening socket, so that no other program can take the port meanwhile. A process
// that starts a second job finds it used up, and binds the port again.
std::optional<Fd> adopt_listener(const Job& job) {
  int listening = 0;
  socklen_t length = sizeof(listening);
  if (job.listen_fd < 0 ||
      ::getsockopt(job.listen_fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &length) != 0 ||
      listening == 0) {
    return std::nullopt;
  }
  if (job.master_port != 0 && local_address(job.listen_fd).port() != job.master_port) {
    return std::nullopt;
  }
  set_reuse(job.listen_fd);
  ::fcntl(job.listen_fd, F_SETFD, FD_CLOEXEC);
  ::fcntl(job.listen_fd, F_SETFL, ::fcntl(job.listen_fd, F_GETFL) | O_NONBLOCK);
  return Fd(job.listen_fd);
}

Fd open_listener(const Job& job) {
  if (std::optional<Fd> adopted = adopt_listener(job)) return std::move(*adopted);
  std::vector<SocketAddress> addresses;
  if (!job.interface.empty()) {
    addresses = resolve_interface(job.interface, job.master_port);
  } else if (!job.rendezvous_file.empty()) {
    addresses = {reachable_address()};
  } else {
    addresses = resolve(job.master_address, job.master_port);
  }
  for (size_t i = 0;; ++i) {
    try {
      return listen_on(addresses[i]);
    } catch (const Error& error) {
      if (i + 1 == addresses.size()) throw Error(ErrorCode::bootstrap, error.what());
    }
  }
}

// "rank 2 (node7, pid 12) has TUTTI_TRANSPORT=tcp, rank 0 has TUTTI_TRANSPORT=shm"
std::string compare_settings(const std::string& whom, const std::string& theirs,
                             const std::string& mine) {
  const std::vector<std::string> a = split(theirs, ';');
  const std::vector<std::string> b = split(mine, ';');
  for (size_t i = 0; i < std::max(a.size(), b.size()); ++i) {
    const std::string& their = i < a.size() ? a[i] : "nothing more";
    const std::string& my = i < b.size() ? b[i] : "nothing more";
    if (their != my) return cat(whom, " has ", their, ", rank 0 has ", my);
  }
  return {};
}

class Gathering {
 public:
  Gathering(const Job& job, const std::string& unix_name)
      : job_(job), deadline_(Deadline::after(job.init_timeout)), launcher_(job.launcher_fd) {
    Fd listener = open_listener(job);
    const SocketAddress address = local_address(listener.get());
    if (!job.rendezvous_file.empty()) file_.emplace(job.rendezvous_file, address);
    if (job.token.empty()) {
      log(LogLevel::warning,
          cat("this job has no token: whoever reaches ", address.text(),
              " can join it; remedy: set TUTTI_TOKEN to the same secret on all ranks"));
    }
    self_ = describe_self();
    self_.address = address.is_wildcard() ? job.master_address : address.host();
    self_.port = address.port();
    self_.unix_name = unix_name;
    self_.note = job.note;
    self_.domain = job.domain;
    acceptor_ = Acceptor(std::move(listener), job.token, job.size);
  }

  Membership run() {
    try {
      wait_for_all();
      check_settings();
    } catch (const Error& error) {
      tell_failure(error);
      throw;
    }
    return hand_out();
  }

 private:
  struct Rank {
    Link link;
    bool arrived = false;
    PeerInfo peer;
    std::string settings;
  };

  void wait_for_all() {
    PollSet set;
    const Clock::time_point say_at = Clock::now() + kSayWhoIsMissing;
    bool said = false;
    while (!missing().empty()) {
      if (deadline_.passed()) throw_missing();
      if (!said && Clock::now() >= say_at) {
        log(LogLevel::warning, cat("still waiting for ", missing_text()));
        said = true;
      }
      set.wake_at(Clock::now() + deadline_.remaining());
      if (!said) set.wake_at(say_at);
      acceptor_.watch(
          set, [this](const Hello& hello) { return judge(hello); },
          [this](const Hello& hello, Fd socket) {
            ranks_[hello.rank].link = Link(std::move(socket));
          });
      launcher_.watch(set, [this](const RankEnd& end) { on_end(end); });
      for (auto& [rank, state] : ranks_) {
        set.add(state.link.fd(), POLLIN, [this, rank = rank](short) { read(rank); });
      }
      set.run();
    }
  }

  Decision judge(const Hello& hello) const {
    if (hello.purpose != Purpose::bootstrap) return Decision::not_in_job;
    const bool known = hello.rank == 0 || ranks_.contains(hello.rank);
    return known ? Decision::duplicate : Decision::accept;
  }

  void read(int rank) {
    Rank& state = ranks_.at(rank);
    const auto on_frame = [&](std::string_view body) {
      FrameReader frame(body);
      state.peer = get_peer(frame);
      state.settings = frame.get_text();
      state.arrived = frame.ok() && frame.type() == FrameType::arrival;
      return state.arrived;
    };
    if (state.link.receive(on_frame, kMaxFrameBytes)) return;
    log(LogLevel::warning,
        cat(state.arrived ? describe(rank, state.peer) : cat("rank ", rank),
            " broke off before all ranks had arrived: ", explain_close(state.link.error())));
    ranks_.erase(rank);
  }

  void on_end(const RankEnd& end) const {
    if (end.rank == job_.rank) return;
    throw Error(ErrorCode::rank_died,
                cat("rank ", end.rank, " (pid ", end.pid, ") ", end.text(),
                    ", before all ranks had found each other"),
                {.remedy = "look at the output of that rank"});
  }

  std::vector<int> missing() const {
    std::vector<int> missing;
    for (int rank = 1; rank < job_.size; ++rank) {
      const auto found = ranks_.find(rank);
      if (found == ranks_.end() || !found->second.arrived) missing.push_back(rank);
    }
    return missing;
  }

  std::string missing_text() const {
    const std::vector<int> ranks = missing();
    return cat(ranks.size() == 1 ? "rank " : "ranks ", rank_ranges(ranks), " of ", job_.size);
  }

  [[noreturn]] void throw_missing() const {
    throw Error(ErrorCode::bootstrap,
                cat(missing_text(), " did not arrive within ",
                    std::chrono::duration<double>(job_.init_timeout).count(), " s at rank 0, ",
                    endpoint_text(self_.address, self_.port)),
                {.cause = "they were not started, ended early, or cannot reach that address",
                 .remedy = "look at their output; TUTTI_INIT_TIMEOUT gives them more time"});
  }

  void check_settings() const {
    for (const auto& [rank, state] : ranks_) {
      const std::string difference =
          compare_settings(describe(rank, state.peer), state.settings, job_.wire_settings);
      if (difference.empty()) continue;
      throw Error(
          ErrorCode::bootstrap, cat("the ranks were started with different settings: ", difference),
          {.remedy =
               "give all ranks the same TUTTI_* variables, and the same files by these names"});
    }
  }

  void tell_failure(const Error& error) {
    const std::string frame = FrameWriter(FrameType::failure)
                                  .put(static_cast<int32_t>(error.code()))
                                  .put_text(cut_text(error.what()))
                                  .finish();
    for (auto& [rank, state] : ranks_) state.link.send(frame);
  }

  Membership hand_out() {
    Membership membership;
    membership.fanout = job_.fanout;
    membership.peers.push_back(self_);
    for (const auto& [rank, state] : ranks_) membership.peers.push_back(state.peer);

    const Nonce identity = random_nonce();
    FrameWriter table(FrameType::table);
    for (const uint8_t byte : identity) table.put(byte);
    table.put(static_cast<int32_t>(job_.fanout));
    for (const PeerInfo& peer : membership.peers) put(table, peer);
    const std::string frame = table.finish();
    for (auto& [rank, state] : ranks_) state.link.send(frame);

    const Tree tree{.rank = 0, .size = job_.size, .fanout = job_.fanout};
    for (auto& [rank, state] : ranks_) {
      while (state.link.wants_to_write() && wait_for(state.link.fd(), POLLOUT, deadline_)) {
        state.link.flush();
      }
      if (tree.is_child(rank)) membership.links[rank] = std::move(state.link);
    }
    membership.key = session_key(job_.token, identity);
    acceptor_.set_session_key(membership.key);
    membership.acceptor = std::move(acceptor_);
    membership.launcher = launcher_;
    return membership;
  }

  const Job& job_;
  const Deadline deadline_;
  LauncherPipe launcher_;
  PeerInfo self_;
  Acceptor acceptor_;
  std::optional<RendezvousFile> file_;
  std::map<int, Rank> ranks_;  // that have shaken hands
};

}  // namespace

Membership gather(const Job& job, const std::string& unix_name) {
  return Gathering(job, unix_name).run();
}

}  // namespace tutti::bootstrap
