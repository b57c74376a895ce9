#include "transport/bootstrap/handshake/acceptor.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "base/descriptor_limit.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "transport/bootstrap/handshake/socket.h"
#include "transport/message.h"

namespace tutti::bootstrap {

namespace {

constexpr std::chrono::seconds kHandshakeTime{5};
constexpr std::chrono::milliseconds kHandshakeTimePerRank{20};
constexpr std::chrono::milliseconds kPause{100};
constexpr size_t kMaxStrangers = 512;
constexpr int kMaxRanks = 1024;          // ranks beyond this number do not raise most_clients()
constexpr size_t kMoreDescriptors = 64;  // step by which the descriptor limit is raised
constexpr int kMostAtOnce = 64;          // accepted connections per turn and listener
constexpr size_t kMaxLogged = 256;

// Returns true if the peer is a process of this user. Descriptors are passed only to such
// processes.
bool same_user(int socket) {
  ucred credentials{};
  socklen_t length = sizeof(credentials);
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) == 0 &&
         credentials.uid == ::geteuid();
}

}  // namespace

std::vector<RailAddress> Acceptor::listen_on_rails(const std::vector<std::string>& interfaces) {
  std::vector<RailAddress> rails;
  for (const std::string& interface : interfaces) {
    Fd& listener = listeners_.emplace_back(listen_on(resolve_interface(interface, 0).front()));
    const SocketAddress address = local_address(listener.get());
    rails.push_back({address.host(), address.port()});
  }
  return rails;
}

std::vector<SocketAddress> Acceptor::own_addresses() const {
  std::vector<SocketAddress> addresses;
  for (const Fd& listener : listeners_) {
    addresses.push_back(local_address(listener.get()));
    addresses.back().set_port(0);
  }
  return addresses;
}

void Acceptor::watch(PollSet& set, const Judge& judge, const Welcome& welcome) {
  drop_late();
  drop_too_many();
  const bool accepts = Clock::now() >= resume_at_;
  if (!accepts) set.wake_at(resume_at_);
  for (const Fd& listener : listeners_) {
    if (!accepts) break;
    set.add(listener.get(), POLLIN, [this, fd = listener.get()](short) { accept_some(fd); });
  }
  for (PendingClient& client : clients_) {
    set.wake_at(client.give_up);
    set.add(client.socket.get(), POLLIN,
            [this, &client, judge, welcome](short) { read(client, judge, welcome); });
  }
}

// Returns the maximum number of unauthenticated connections. Beyond it the oldest is dropped.
size_t Acceptor::most_clients() const {
  return kMaxStrangers + static_cast<size_t>(std::min(world_size_, kMaxRanks));
}

std::chrono::milliseconds Acceptor::time_to_finish() const {
  return kHandshakeTime + world_size_ * kHandshakeTimePerRank;
}

void Acceptor::drop_late() {
  for (PendingClient& client : clients_) {
    if (client.done || Clock::now() < client.give_up) continue;
    say_once("silent", cat("dropped a connection from ", client.from,
                           " that did not finish the handshake within ", time_to_finish().count(),
                           " ms; likely cause: another program uses this port"));
    client.done = true;
  }
  clients_.remove_if([](const PendingClient& client) { return client.done; });
}

void Acceptor::drop_too_many() {
  if (clients_.size() <= most_clients()) return;
  size_t too_many = clients_.size() - most_clients();
  clients_.remove_if([&](const PendingClient& client) {
    if (client.accepted || too_many == 0) return false;
    --too_many;
    say_once("many", cat("dropped a connection from ", client.from,
                         ": too many concurrent handshakes; likely cause: a port scanner"));
    return true;
  });
}

void Acceptor::accept_some(int listener) {
  for (int i = 0; i < kMostAtOnce; ++i) {
    Fd socket(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket) {
      admit(std::move(socket));
      continue;
    }
    const int error = errno;
    if (error == EINTR || error == ECONNABORTED) continue;
    if (error == EMFILE && reserve_descriptors(kMoreDescriptors)) continue;
    const bool shortage = is_descriptor_shortage(error);
    if (!shortage && error != ENOBUFS && error != ENOMEM) return;
    // If descriptors run out, new connections stay in the listener's queue until some are
    // available.
    const char* what = "this rank cannot accept connections at present";
    say_once("accept",
             (shortage ? descriptor_shortage(what, error) : system_error(what, error)).what());
    resume_at_ = Clock::now() + kPause;
    return;
  }
}

void Acceptor::admit(Fd socket) {
  SocketAddress from;
  from.length = sizeof(from.storage);
  if (::getpeername(socket.get(), reinterpret_cast<sockaddr*>(&from.storage), &from.length) != 0) {
    return;
  }
  const bool is_unix = from.family() == AF_UNIX;
  if (is_unix && !same_user(socket.get())) {
    say_once("user",
             "refused another user's process that asked for this job's shared memory; the job is "
             "not affected");
    return;
  }
  set_no_delay(socket.get());
  set_keepalive(socket.get());
  set_reuse(socket.get());  // the launcher's listener may lack this option
  PendingClient client;
  client.from = is_unix ? "this host" : from.host();
  client.challenge = make_challenge();
  client.give_up = Clock::now() + time_to_finish();
  // A new socket's buffer has room for the challenge.
  if (::send(socket.get(), &client.challenge, sizeof(Challenge), MSG_NOSIGNAL) !=
      sizeof(Challenge)) {
    return;
  }
  client.socket = std::move(socket);
  clients_.push_back(std::move(client));
}

void Acceptor::read(PendingClient& client, const Judge& judge, const Welcome& welcome) {
  if (client.done) return;
  if (client.accepted) return encrypt(client, welcome);
  auto* bytes = reinterpret_cast<char*>(&client.hello);
  const ssize_t got = ::recv(client.socket.get(), bytes + client.received,
                             sizeof(Hello) - client.received, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) {
    if (client.received > 0) {
      say_once("cut", cat("a connection from ", client.from, " ended during the handshake"));
    }
    client.done = true;
    return;
  }
  client.received += static_cast<size_t>(got);
  const size_t seen = std::min(client.received, kMagic.size());
  if (std::memcmp(bytes, kMagic.data(), seen) != 0) {
    say_once("garbage", cat("dropped a connection from ", client.from,
                            " that does not speak Tutti's "
                            "protocol; likely cause: a port scanner, or another program that was "
                            "given this port"));
    client.done = true;
    return;
  }
  if (client.received < sizeof(Hello)) return;

  client.done = true;
  bool ignore = false;
  Verdict verdict{.refusal = judge_hello(client, judge, ignore), .size = world_size_};
  if (ignore) return;
  // This side sends its proof only to a peer that has proved that it knows the token, because any
  // other peer could use the proof to test guessed tokens offline.
  if (verdict.refusal != Refusal::bad_token && verdict.refusal != Refusal::wrong_version) {
    verdict.proof = prove(key_for(client.hello), client.challenge, client.hello, verdict);
  }
  const bool sent = ::send(client.socket.get(), &verdict, sizeof(verdict), MSG_NOSIGNAL) ==
                    static_cast<ssize_t>(sizeof(verdict));
  if (!sent || verdict.refusal != Refusal::none) return;
  if (client.hello.encrypted == 0) return welcome(client.hello, std::move(client.socket));
  client.socket.encrypt(TlsSide::accepts,
                        tls_key(key_for(client.hello), client.challenge, client.hello));
  client.accepted = true;
  client.done = false;
}

void Acceptor::encrypt(PendingClient& client, const Welcome& welcome) {
  const int error = client.socket.shake_hands();
  if (error == EAGAIN) return;
  client.done = true;
  if (error == EBADMSG) {
    say_once("meddled", meddled_with(cat("rank ", client.hello.rank, " at ", client.from)).what());
  }
  if (error == 0) welcome(client.hello, std::move(client.socket));
}

bool Acceptor::must_encrypt(const Hello& hello) const {
  if (hello.purpose == Purpose::descriptors) return false;
  return hello.purpose == Purpose::data ? demands_encrypted_data_ : demands_encryption_;
}

Refusal Acceptor::judge_hello(const PendingClient& client, const Judge& judge, bool& ignore) {
  const Hello& hello = client.hello;
  const auto refuse = [&](Refusal refusal, const std::string& text) {
    say_once(cat("refusal ", static_cast<int>(refusal), " ", client.from),
             cat("refused a connection from ", client.from, ": ", text));
    return refusal;
  };
  if (hello.version != kWireVersion) {
    return refuse(Refusal::wrong_version, cat("the peer uses wire version ", hello.version,
                                              ", this rank uses ", kWireVersion));
  }
  if (!equal(hello.proof, prove(key_for(hello), client.challenge, hello))) {
    return refuse(Refusal::bad_token,
                  "the peer does not know this job's token; likely cause: a rank of another job");
  }
  if (hello.encrypted == 0 && must_encrypt(hello)) {
    return refuse(Refusal::not_in_job,
                  "the peer would continue unencrypted, although this job has a token; likely "
                  "cause: the peer is not a rank of this job");
  }
  // An observer's Hello contains neither the number of ranks nor the rank that it is connected to.
  const bool watches = hello.purpose == Purpose::watch;
  if (hello.size != world_size_ && !watches) {
    if (other_size_) other_size_(hello, client.from);
    return refuse(Refusal::wrong_size, cat("rank ", hello.rank, " expects a world of ", hello.size,
                                           " ranks, this rank expects ", world_size_));
  }
  if (hello.rank < 0 || hello.rank >= world_size_) {
    return refuse(Refusal::rank_out_of_range,
                  cat("rank ", hello.rank, " is not in 0 to ", world_size_ - 1));
  }
  if (hello.to != rank_ && !watches) {
    return refuse(Refusal::not_in_job,
                  cat("rank ", hello.rank, " asks for rank ", hello.to, ", but this is rank ",
                      rank_, "; likely cause: something redirects connections"));
  }
  // If an attempt by a rank is in progress, further attempts by that rank are ignored. They are
  // repeated later, and then show whether a second process claims the rank. A replacement
  // connection does not wait for an earlier attempt, because the earlier attempt's network may be
  // down.
  ignore = !watches && hello.number == 0 &&
           std::ranges::any_of(clients_, [&](const PendingClient& other) {
             return other.accepted && !other.done && other.hello.rank == hello.rank &&
                    other.hello.purpose == hello.purpose && other.hello.lane == hello.lane &&
                    other.hello.communicator == hello.communicator;
           });
  if (ignore) return Refusal::none;
  switch (judge(hello)) {
    case Decision::accept:
      return Refusal::none;
    case Decision::duplicate:
      return refuse(Refusal::duplicate_rank, cat("rank ", hello.rank, " is already connected"));
    case Decision::not_in_job:
      return refuse(Refusal::not_in_job,
                    cat("rank ", hello.rank, " is not a neighbour of this rank"));
    case Decision::given_up:
      return refuse(Refusal::given_up,
                    cat("rank ", hello.rank, " was unreachable, and has been excluded"));
    case Decision::ignore:
      break;
  }
  ignore = true;
  return Refusal::none;
}

void Acceptor::say_once(const std::string& kind, const std::string& text) {
  if (logged_.size() > kMaxLogged || !logged_.insert(kind).second) return;
  log(LogLevel::warning,
      logged_.size() <= kMaxLogged
          ? text
          : "more connections were dropped or refused; further ones are not logged");
}

}  // namespace tutti::bootstrap
