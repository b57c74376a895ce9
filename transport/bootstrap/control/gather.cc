// Rank 0's side of the bootstrap.
#include <algorithm>
#include <cerrno>
#include <map>
#include <optional>
#include <set>

#include "base/descriptor_limit.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "transport/bootstrap/control/bootstrap.h"
#include "transport/bootstrap/control/peer_table.h"
#include "transport/bootstrap/control/tree.h"
#include "transport/bootstrap/discovery/meeting.h"
#include "transport/bootstrap/handshake/connector.h"
#include "transport/bootstrap/handshake/socket.h"

namespace tutti::bootstrap {

namespace {

constexpr std::chrono::seconds kSayWhoIsMissing{10};
// Grace period after a broken connection, for the launcher to report how the rank ended.
constexpr std::chrono::milliseconds kTimeToTellRoot{500};
// Time for late ranks to learn why the job will not start.
constexpr std::chrono::seconds kTimeToHear{1};
// Time in which a released rank must accept the connection that reports a failure to it.
constexpr std::chrono::seconds kTimeToReach{5};
constexpr std::chrono::milliseconds kTimeToReachPerRank{1};
constexpr int kMostReported = 64;  // maximum number of connections that report a failure
// Maximum number of ranks between handshake and arrival; others are not accepted meanwhile.
constexpr int kMostArriving = 256;

// Formats "rank 2 (node7, pid 12) has TUTTI_TRANSPORT=tcp, rank 0 has TUTTI_TRANSPORT=shm".
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
      : job_(job),
        key_(bootstrap_key(job.token, job.incarnation)),
        deadline_(Deadline::after(job.init_timeout)),
        tree_{.rank = 0, .size = job.size, .fanout = job.fanout},
        launcher_(job.launcher_fd) {
    Fd listener = listen_as_rank_zero(job);
    const SocketAddress address = local_address(listener.get());
    if (const auto rendezvous = rendezvous_of(job)) {
      published_.emplace(rendezvous, kRankZeroKey,
                         rank_zero_value(address, job.token_by_rendezvous ? job.token : ""));
    }
    if (job.token.empty()) {
      log(LogLevel::warning,
          cat("this job has no token, so every process that reaches ", address.text(),
              " can join it; if that is a risk, set TUTTI_TOKEN or TUTTI_TOKEN_FILE to one secret "
              "on all ranks"));
    }
    self_ = describe_self();
    self_.address = address.is_wildcard() ? job.master_address : address.host();
    self_.port = address.port();
    self_.unix_name = unix_name;
    self_.note = job.note;
    self_.fabric = job.fabric;
    self_.domain = job.domain;
    self_.rack = job.rack;
    acceptor_ = Acceptor(std::move(listener), key_, job.size);
    if (!job.token.empty()) acceptor_.demand_encryption(job.encrypts_data);
    self_.more_rails = acceptor_.listen_on_rails(job.more_interfaces);
    acceptor_.on_other_size(
        [this](const Hello& hello, const std::string& from) { on_other_size(hello, from); });
    // Checks the limit of file descriptors first: with too few, some ranks would wait until their
    // timeout.
    const int64_t held = std::min<int64_t>(job.size - 1, int64_t{job.fanout} + job.most_held);
    if (!reserve_descriptors(static_cast<size_t>(held + 1))) {
      throw descriptor_shortage(cat("connections to ", held, " ranks"), EMFILE);
    }
  }

  Membership run() {
    try {
      wait_for_all();
      check_settings();
      return complete();
    } catch (const Error& error) {
      tell_failure(error);
      throw;
    }
  }

 private:
  struct Rank {
    Link link;
    std::string from;
    bool arrived = false;
    PeerInfo peer;
    std::string settings;
  };

  void wait_for_all() {
    const Clock::time_point say_at = Clock::now() + kSayWhoIsMissing;
    bool logged = false;
    while (arrived_ < job_.size - 1) {
      if (deadline_.passed()) throw_missing();
      if (!logged && Clock::now() >= say_at) {
        log(LogLevel::warning, cat("still waiting for ", missing_text()));
        logged = true;
      }
      set_.wake_at(Clock::now() + deadline_.remaining());
      if (!logged) set_.wake_at(say_at);
      watch([this](int rank) { read(rank); });
      launcher_.watch(set_, [](const RankEnd& end) { throw death_while_joining(end); });
      set_.run();
      if (failure_) throw *failure_;
    }
  }

  // Watches the listener and the ranks' connections.
  void watch(const std::function<void(int rank)>& on_readable) {
    if (arriving_ < kMostArriving) {
      acceptor_.watch(
          set_, [this](const Hello& hello) { return judge(hello); },
          [this](const Hello& hello, ByteStream socket) {
            welcome(hello.rank, std::move(socket));
          });
    }
    for (const auto& [rank, state] : ranks_) {
      if (!state.link.connected()) continue;
      set_.add(state.link.fd(), POLLIN, [on_readable, rank = rank](short) { on_readable(rank); });
    }
  }

  Decision judge(const Hello& hello) {
    if (hello.purpose != Purpose::bootstrap) return Decision::not_in_job;
    const bool known = hello.rank == 0 || ranks_.contains(hello.rank);
    if (!known) return Decision::accept;
    twice_.insert(hello.rank);
    return Decision::duplicate;
  }

  void welcome(int rank, ByteStream socket) {
    Rank& state = ranks_[rank];
    try {
      state.from = peer_address(socket.get()).host();
    } catch (const Error&) {  // the peer disconnected; the next read reports it
      state.from = "an unknown address";
    }
    state.link = Link(std::move(socket));
    ++arriving_;
    count_accepted(stats_);
    if (!failure_frame_.empty()) state.link.send(failure_frame_);
  }

  // Fails the bootstrap, because a rank assumes another world size. Whichever size is right, there
  // would be too few ranks or too many.
  void on_other_size(const Hello& hello, const std::string& from) {
    if (failure_ || hello.purpose != Purpose::bootstrap) return;
    failure_ =
        Error(ErrorCode::bootstrap,
              cat("the ranks disagree about the world size: rank ", hello.rank, " (at ", from,
                  ") was started with WORLD_SIZE ", hello.size, ", ", describe(0, self_), " with ",
                  job_.size),
              {.cause = "the ranks were started with different sizes, or belong to different jobs "
                        "that use the same address",
               .remedy = "start all ranks with the same WORLD_SIZE, and give every job its own "
                         "MASTER_PORT and TUTTI_TOKEN"});
  }

  void read(int rank) {
    Rank& state = ranks_.at(rank);
    const auto on_frame = [&](std::string_view body) {
      FrameReader frame(body);
      if (state.arrived) return false;  // no further frames are expected
      state.peer = get_peer(frame);
      state.settings = frame.get_text();
      state.arrived = frame.ok() && frame.type() == FrameType::arrival;
      stats_.received.add(sizeof(uint32_t) + body.size());
      return state.arrived;
    };
    const bool had_arrived = state.arrived;
    if (!state.link.receive(on_frame, kMaxFrameBytes)) throw_vanished(rank);
    if (state.arrived && !had_arrived) hold_or_release(rank);
  }

  void hold_or_release(int rank) {
    ++arrived_;
    --arriving_;
    if (!tree_.is_child(rank) && held_ >= job_.most_held) return release(ranks_.at(rank));
    if (!tree_.is_child(rank)) ++held_;
    stats_.most_held = std::max(stats_.most_held, held_ + children_);
  }

  // Sends the "released" frame, which fits into the socket buffer, because that is still empty.
  void release(Rank& state) {
    FrameWriter released(FrameType::released);
    for (const uint8_t byte : identity_) released.put(byte);
    const std::string frame = released.finish();
    state.link.send(frame);
    state.link.close();
    stats_.sent.add(frame.size());
  }

  void forget(int rank) {
    if (!ranks_.at(rank).arrived) --arriving_;
    ranks_.erase(rank);
    ++gone_;
  }

  // Throws the error for a rank that vanished. Waits briefly for the launcher, if there is one,
  // because its report names the cause.
  [[noreturn]] void throw_vanished(int rank) {
    const Rank& state = ranks_.at(rank);
    const std::string who =
        state.arrived ? describe(rank, state.peer) : cat("rank ", rank, " (at ", state.from, ")");
    const std::string how = explain_close(state.link.error());
    forget(rank);
    const Deadline deadline = Deadline::after(kTimeToTellRoot);
    while (launcher_.open() && !deadline.passed()) {
      set_.wake_at(Clock::now() + deadline.remaining());
      launcher_.watch(set_, [](const RankEnd& end) { throw death_while_joining(end); });
      set_.run();
    }
    throw Error(
        ErrorCode::rank_died,
        cat(who, " disconnected during startup, before all ranks had connected (", how, ")"),
        {.remedy = "check the output of that rank", .rank = rank});
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

  // Returns a hint for the error text: if two processes claim the same rank, another rank is
  // probably missing.
  std::string twice_text() const {
    if (twice_.empty()) return {};
    const std::vector<int> ranks(twice_.begin(), twice_.end());
    return cat("; more than one process was started as ",
               ranks.size() == 1 ? "rank " : "each of ranks ", rank_ranges(ranks));
  }

  [[noreturn]] void throw_missing() const {
    throw Error(
        ErrorCode::bootstrap,
        cat(missing_text(), " did not arrive within ",
            std::chrono::duration<double>(job_.init_timeout).count(), " s at rank 0, ",
            endpoint_text(self_.address, self_.port), twice_text()),
        {.cause = "those ranks were not started, exited early, or cannot reach that address",
         .remedy = "check their output; raise TUTTI_INIT_TIMEOUT if they need more time"});
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

  // Reports the error to all ranks that have arrived and, for a moment, to late ones. Ends as soon
  // as all have been notified; notified ranks close their connections.
  void tell_failure(const Error& error) {
    failure_frame_ = failure_frame(error);
    std::vector<int> unreported;  // ranks whose first connections have ended
    for (auto& [rank, state] : ranks_) {
      state.link.send(failure_frame_);
      if (!state.link.connected()) unreported.push_back(rank);
    }
    Connector connector(session_key(key_, identity_), job_.size);
    int being_reported = 0;
    const auto on_reported = [&] {
      --being_reported;
      ++gone_;
      set_.wake_at(Clock::now());  // starts the next attempt
    };
    const Deadline late = Deadline::after(kTimeToHear);
    const Deadline reached = Deadline::after(kTimeToReach + job_.size * kTimeToReachPerRank);
    const auto some_can_receive = [&] {
      return !late.passed() || (being_reported + unreported.size() > 0 && !reached.passed());
    };
    while (gone_ < job_.size - 1 && some_can_receive()) {
      for (; !unreported.empty() && being_reported < kMostReported;
           unreported.pop_back(), ++being_reported) {
        const int rank = unreported.back();
        connector.start(ranks_.at(rank).peer, rank,
                        {.purpose = Purpose::control,
                         .encrypted = !job_.token.empty(),
                         .rank = 0,
                         .size = job_.size},
                        describe(rank, ranks_.at(rank).peer));
      }
      connector.watch(
          set_,
          [&](uint64_t, int, int, ByteStream socket) {
            Link(std::move(socket)).send(failure_frame_);
            on_reported();
          },
          [&](uint64_t, int, const Error&) { on_reported(); });  // the rank has ended
      set_.wake_at(Clock::now() + (late.passed() ? reached : late).remaining());
      watch([this](int rank) {
        const auto ignore = [](std::string_view) { return true; };
        if (!ranks_.at(rank).link.receive(ignore, kMaxFrameBytes)) forget(rank);
      });
      set_.run();
    }
  }

  Membership complete() {
    Membership membership;
    membership.encrypted = !job_.token.empty();
    membership.fanout = job_.fanout;
    membership.key = session_key(key_, identity_);
    membership.rank_zero = self_;
    membership.peers = shared_table(membership.key, [this] {
      std::vector<PeerInfo> peers = {self_};
      for (const auto& [rank, state] : ranks_) peers.push_back(state.peer);
      return peers;
    });

    FrameWriter table(FrameType::table);
    for (const uint8_t byte : identity_) table.put(byte);
    table.put(static_cast<int32_t>(job_.fanout));
    put(table, *membership.peers);
    membership.table = std::make_shared<const std::string>(table.finish());

    for (auto& [rank, state] : ranks_) {
      if (tree_.is_child(rank)) {
        membership.links[rank] = std::move(state.link);
      } else if (state.link.connected()) {
        release(state);
      }
    }
    acceptor_.on_other_size({});
    acceptor_.set_session_key(membership.key);
    membership.acceptor = std::move(acceptor_);
    membership.launcher = launcher_;
    count_all(membership.table->size());
    membership.stats = stats_;
    return membership;
  }

  // Counts the messages of all ranks. Those on links below rank 0's own are computed, because no
  // rank reports them.
  void count_all(size_t table_bytes) {
    const auto links = static_cast<uint64_t>(job_.size - 1 - children_);
    stats_.sent.add(table_bytes, children_);
    stats_.all = stats_.sent;
    stats_.all.messages += stats_.received.messages;
    stats_.all.bytes += stats_.received.bytes;
    stats_.all.add(sizeof(Challenge), links);
    stats_.all.add(sizeof(Hello), links);
    stats_.all.add(sizeof(Verdict), links);
    stats_.all.add(table_bytes, links);
    const int inner = (job_.size - 2) / job_.fanout;  // ranks with a parent and children
    stats_.all.add(FrameWriter(FrameType::linked).finish().size(), inner);
  }

  const Job& job_;
  const std::string key_;
  const Deadline deadline_;
  const Tree tree_;
  const int children_ = static_cast<int>(tree_.children().size());
  const Nonce identity_ = random_nonce();  // identity of the job
  LauncherPipe launcher_;
  PeerInfo self_;
  Acceptor acceptor_;
  std::optional<Published> published_;
  PollSet set_;
  std::map<int, Rank> ranks_;  // ranks that have completed the handshake
  int arriving_ = 0;           // number of ranks of ranks_ that have not arrived
  int arrived_ = 0;            // number of ranks of ranks_ that have arrived
  // Number of open first connections of arrived ranks other than rank 0's children.
  int held_ = 0;
  int gone_ = 0;         // ranks that died or were notified of the failure
  std::set<int> twice_;  // ranks claimed by a second process
  std::optional<Error> failure_;
  std::string failure_frame_;  // set once the job cannot start
  InitStats stats_;
};

}  // namespace

Membership gather(const Job& given, const std::string& unix_name) {
  Job job = given;
  if (job.token_by_rendezvous) job.token = to_hex(random_nonce());
  return Gathering(job, unix_name).run();
}

}  // namespace tutti::bootstrap
