// The side of every rank but 0 of the bootstrap.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <thread>

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

constexpr std::chrono::seconds kSayWhatIsMissing{10};
constexpr std::chrono::milliseconds kRetry{50};
constexpr std::chrono::seconds kAttempt{3};
// Rank 0, whose time may be up later, is the one that knows who is missing.
constexpr std::chrono::seconds kGrace{2};

std::string rank_zero_at(const SocketAddress& address) { return "rank 0 at " + address.text(); }

Hello make_hello(const Job& job, Purpose purpose) {
  return {.purpose = purpose, .rank = job.rank, .size = job.size};
}

// Looks for rank 0 until it answers; it may be started later than this rank.
class Search {
 public:
  Search(const Job& job, const Deadline& deadline) : job_(job), deadline_(deadline) {}

  Fd run() {
    const Clock::time_point say_at = Clock::now() + kSayWhatIsMissing;
    bool said = false;
    while (!deadline_.passed()) {
      if (Fd socket = try_once()) return socket;
      if (!said && Clock::now() >= say_at) {
        log(LogLevel::warning, "still looking for rank 0: " + problem_);
        said = true;
      }
      std::this_thread::sleep_for(std::min(kRetry, deadline_.remaining()));
    }
    throw Error(ErrorCode::bootstrap,
                cat("rank ", job_.rank, " did not find rank 0 within ",
                    std::chrono::duration<double>(job_.init_timeout).count(), " s: ", problem_),
                {.cause = "rank 0 was not started, ended early, or cannot be reached from here",
                 .remedy = "look at the output of rank 0, and at MASTER_ADDR and MASTER_PORT; "
                           "TUTTI_INIT_TIMEOUT gives it more time"});
  }

 private:
  std::vector<SocketAddress> addresses() {
    if (job_.rendezvous_file.empty()) return resolve(job_.master_address, job_.master_port);
    if (auto address = read_rendezvous(job_.rendezvous_file)) return {*address};
    problem_ = cat("the rendezvous file ", job_.rendezvous_file, " is not there yet");
    return {};
  }

  Fd try_once() {
    std::vector<SocketAddress> candidates;
    try {
      candidates = addresses();
    } catch (const Error& error) {  // a name may come to be known later
      problem_ = error.what();
    }
    for (const SocketAddress& address : candidates) {
      Fd socket;
      const auto attempt = std::min<std::chrono::milliseconds>(kAttempt, deadline_.remaining());
      const int error = try_connect(address, Deadline::after(attempt), socket);
      if (error != 0) {
        problem_ =
            cat("connect to ", address.text(), ": ", std::strerror(error), " (errno ", error, ")");
      } else if (greet(socket.get(), address)) {
        return socket;
      }
    }
    return {};
  }

  bool greet(int socket, const SocketAddress& address) {
    try {
      if (shake_hands(socket, make_hello(job_, Purpose::bootstrap), job_.token,
                      rank_zero_at(address), deadline_)) {
        return true;
      }
      problem_ = cat(address.text(), " closed the connection without an answer");
    } catch (const NotThisJob& error) {
      // A file that another job left behind is written anew when this one's rank 0 starts.
      if (job_.rendezvous_file.empty()) throw;
      problem_ = error.what();
    }
    return false;
  }

  const Job& job_;
  const Deadline& deadline_;
  std::string problem_ = "no attempt was made";
};

Fd open_listener(const Job& job, int bootstrap_socket) {
  if (!job.interface.empty()) return listen_on(resolve_interface(job.interface, 0).front());
  SocketAddress address = local_address(bootstrap_socket);
  address.set_port(0);
  return listen_on(address);
}

std::string receive_table(int socket, const std::string& rank_zero, const Deadline& deadline) {
  std::string body;
  int error = 0;
  const Transfer transfer = read_frame(socket, body, kMaxTableBytes, deadline, &error);
  if (transfer == Transfer::timed_out) {
    throw Error(ErrorCode::bootstrap, rank_zero + " did not tell who is in the job in time",
                {.cause = "other ranks are missing, or rank 0 is stopped",
                 .remedy = "look at the output of rank 0"});
  }
  if (transfer == Transfer::closed) {
    throw Error(ErrorCode::bootstrap,
                cat(rank_zero, " ended before all ranks had arrived: ", explain_close(error)),
                {.remedy = "look at the output of rank 0"});
  }
  return body;
}

// Fills in peers, key and fanout.
void read_table(const Job& job, const std::string& body, Membership& membership) {
  FrameReader frame(body);
  if (frame.type() == FrameType::failure) {
    const auto code = static_cast<ErrorCode>(frame.get<int32_t>());
    throw Error(code, frame.get_text());
  }
  Nonce identity;
  for (uint8_t& byte : identity) byte = frame.get<uint8_t>();
  membership.fanout = frame.get<int32_t>();
  for (int rank = 0; rank < job.size; ++rank) membership.peers.push_back(get_peer(frame));
  if (!frame.ok() || frame.type() != FrameType::table || membership.fanout < 1) {
    throw Error(ErrorCode::bootstrap, "rank 0 sent a table of ranks that makes no sense",
                {.cause = "the ranks run different builds of Tutti"});
  }
  membership.key = session_key(job.token, identity);
}

// A connection to another rank's listener, handshake done. Throws Error.
Fd connect_to_peer(const PeerInfo& peer, const Hello& hello, const std::string& key,
                   const std::string& whom, const Deadline& deadline) {
  const std::string place = cat(whom, " at ", endpoint_text(peer.address, peer.port));
  Fd socket;
  const int error = try_connect(resolve(peer.address, peer.port).front(), deadline, socket);
  if (error != 0) throw connect_error(place, error);
  if (!shake_hands(socket.get(), hello, key, place, deadline)) throw closed_in_handshake(place, 0);
  return socket;
}

}  // namespace

Membership join(const Job& job, const std::string& unix_name) {
  const Deadline deadline = Deadline::after(job.init_timeout);
  Fd socket = Search(job, deadline).run();
  const SocketAddress rank_zero = peer_address(socket.get());
  Fd listener = open_listener(job, socket.get());
  PeerInfo self = describe_self();
  self.address = local_address(listener.get()).host();
  self.port = local_address(listener.get()).port();
  self.unix_name = unix_name;
  self.note = job.note;
  self.domain = job.domain;

  FrameWriter arrival(FrameType::arrival);
  put(arrival, self);
  const std::string frame = arrival.put_text(job.wire_settings).finish();
  // A failure shows when the answer is read.
  write_exactly(socket.get(), std::as_bytes(std::span(frame)), deadline);
  const Deadline answer_by = Deadline::after(deadline.remaining() + kGrace);
  const std::string body = receive_table(socket.get(), rank_zero_at(rank_zero), answer_by);

  Membership membership;
  read_table(job, body, membership);
  // The address that is known to work from here.
  membership.peers[0].address = rank_zero.host();
  membership.peers[0].port = rank_zero.port();
  membership.acceptor = Acceptor(std::move(listener), job.token, job.size);
  membership.acceptor.set_session_key(membership.key);
  membership.launcher = LauncherPipe(job.launcher_fd);

  const Tree tree{.rank = job.rank, .size = job.size, .fanout = membership.fanout};
  const int parent = tree.parent();
  if (parent != 0) {
    socket = connect_to_peer(membership.peers[parent], make_hello(job, Purpose::control),
                             membership.key, describe(parent, membership.peers[parent]), deadline);
  }
  membership.links[parent] = Link(std::move(socket));
  return membership;
}

}  // namespace tutti::bootstrap
