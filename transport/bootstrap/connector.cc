#include "transport/bootstrap/connector.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/descriptor_limit.h"
#include "base/error.h"
#include "base/text.h"
#include "transport/bootstrap/socket.h"

namespace tutti::bootstrap {

namespace {

constexpr std::chrono::seconds kTimeToOpen{30};  // some SYNs may be lost on a busy link
constexpr std::chrono::milliseconds kTimeToOpenPerRank{20};
constexpr std::chrono::milliseconds kLongestPause{500};

// The acceptor closed the connection without a verdict.
class Dropped : public Error {
 public:
  using Error::Error;
  Dropped(const Error& error) : Error(error) {}  // NOLINT
};

// Reads on into `message`, of which `received` bytes are there. True once it is whole; throws when
// the connection ended or the other side does not speak this protocol.
template <typename T>
bool receive(int socket, T& message, size_t& received, const std::string& place) {
  auto* bytes = reinterpret_cast<char*>(&message);
  const ssize_t got = ::recv(socket, bytes + received, sizeof(T) - received, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (got <= 0) throw Dropped(closed_in_handshake(place, got == 0 ? 0 : errno));
  received += static_cast<size_t>(got);
  require_magic({bytes, std::min(received, kMagic.size())}, place);
  if (received < sizeof(T)) return false;
  received = 0;
  return true;
}

}  // namespace

std::chrono::milliseconds Connector::time_to_open() const {
  return kTimeToOpen + world_size_ * kTimeToOpenPerRank;
}

void Connector::start(const PeerInfo& peer, int rank, const Hello& hello, const std::string& whom) {
  Attempt& attempt = attempts_.emplace_back();
  attempt.hello = hello;
  attempt.hello.to = rank;
  attempt.rank = rank;
  const size_t rails = std::min(own_.size(), peer.rails());
  const size_t rail = rails > 1 ? static_cast<size_t>(hello.lane) % rails : 0;
  const RailAddress there =
      rail == 0 ? RailAddress{peer.address, peer.port} : peer.more_rails[rail - 1];
  attempt.place = cat(whom, " at ", endpoint_text(there.address, there.port));
  attempt.give_up = Clock::now() + time_to_open();
  try {
    // The address is numeric, so this waits for no name server.
    attempt.address = resolve(there.address, there.port).front();
    if (rails > 1 && own_[rail].family() == attempt.address.family()) {
      attempt.own = &own_[rail];
      attempt.place += cat(" from ", own_[rail].host(), " (rail ", rail, " of ", rails, ")");
    }
    connect(attempt);
  } catch (const Error& error) {
    attempt.failure = error;
  }
}

// Where a rail leads is this side's own choice, so that may be the mistake.
Error Connector::unreachable(const Attempt& attempt, int error) {
  if (attempt.own == nullptr || error == ECONNREFUSED || is_descriptor_shortage(error)) {
    return connect_error(attempt.place, error);
  }
  return {
      ErrorCode::connection_lost,
      cat("no connection to ", attempt.place, ": ", std::strerror(error), " (errno ", error, ")"),
      {.cause = "no network or a firewall is between these two addresses, or TUTTI_INTERFACE "
                "lists the interfaces in another order there",
       .remedy = "let TUTTI_INTERFACE list, in the same order on all hosts, only interfaces "
                 "whose networks reach all of them"}};
}

void Connector::connect(Attempt& attempt) {
  Fd socket;
  const int error = begin_connect(attempt.address, socket, attempt.own);
  attempt.socket = std::move(socket);
  if (error != 0 && error != EINPROGRESS) throw unreachable(attempt, error);
  attempt.stage = Stage::connecting;
}

void Connector::pause(Attempt& attempt) {
  attempt.socket.reset();
  attempt.received = 0;
  attempt.stage = Stage::pausing;
  attempt.resume_at = Clock::now() + attempt.pause;
  attempt.pause = std::min(2 * attempt.pause, kLongestPause);
}

void Connector::drop(uint64_t communicator) {
  attempts_.remove_if(
      [=](const Attempt& attempt) { return attempt.hello.communicator == communicator; });
}

void Connector::watch(PollSet& set, const Opened& opened, const Failed& failed) {
  const Clock::time_point now = Clock::now();
  for (Attempt& attempt : attempts_) {
    if (attempt.stage == Stage::done) continue;
    if (attempt.stage == Stage::pausing && now >= attempt.resume_at) advance(attempt, opened);
    if (!attempt.failure && now >= attempt.give_up) {
      attempt.failure =
          Error(ErrorCode::connection_lost,
                cat("no connection to ", attempt.place, " within ", time_to_open().count(), " ms"),
                {.cause = "that rank is stopped or can open no more files (it says so then), or a "
                          "firewall is between",
                 .remedy = "open all TCP ports between the hosts; TUTTI_INTERFACE chooses the "
                           "networks"});
    }
    if (!attempt.failure) continue;
    attempt.stage = Stage::done;
    failed(attempt.hello.communicator, attempt.rank, *attempt.failure);
  }
  attempts_.remove_if([](const Attempt& attempt) { return attempt.stage == Stage::done; });
  for (Attempt& attempt : attempts_) {
    set.wake_at(attempt.give_up);
    if (attempt.stage == Stage::pausing) {
      set.wake_at(attempt.resume_at);
    } else {
      set.add(attempt.socket.get(), attempt.stage == Stage::connecting ? POLLOUT : POLLIN,
              [this, &attempt, opened](short) { advance(attempt, opened); });
    }
  }
}

void Connector::advance(Attempt& attempt, const Opened& opened) {
  const int socket = attempt.socket.get();
  try {
    switch (attempt.stage) {
      case Stage::pausing:
        return connect(attempt);
      case Stage::connecting:
        return finish_connect(attempt);
      case Stage::reading_challenge:
        if (!receive(socket, attempt.challenge, attempt.received, attempt.place)) return;
        return answer_challenge(attempt);
      case Stage::reading_verdict:
        if (!receive(socket, attempt.verdict, attempt.received, attempt.place)) return;
        return read_verdict(attempt, opened);
      case Stage::encrypting:
        return encrypt(attempt, opened);
      case Stage::done:
        return;
    }
  } catch (const Dropped&) {
    pause(attempt);
  } catch (const Error& error) {
    attempt.failure = error;
  }
}

void Connector::finish_connect(Attempt& attempt) {
  const int error = end_connect(attempt.socket.get());
  if (error != 0) throw unreachable(attempt, error);
  attempt.stage = Stage::reading_challenge;
}

void Connector::answer_challenge(Attempt& attempt) {
  attempt.hello = sign_hello(attempt.hello, attempt.challenge, key_, attempt.place);
  // A fresh socket has room for it.
  if (::send(attempt.socket.get(), &attempt.hello, sizeof(Hello), MSG_NOSIGNAL | MSG_DONTWAIT) !=
      sizeof(Hello)) {
    throw Dropped(closed_in_handshake(attempt.place, errno));
  }
  attempt.stage = Stage::reading_verdict;
}

void Connector::read_verdict(Attempt& attempt, const Opened& opened) {
  check_verdict(attempt.verdict, attempt.challenge, attempt.hello, key_, attempt.place);
  if (attempt.hello.encrypted != 0) {
    attempt.socket.encrypt(TlsSide::connects, tls_key(key_, attempt.challenge, attempt.hello));
    attempt.stage = Stage::encrypting;
    return encrypt(attempt, opened);
  }
  attempt.stage = Stage::done;
  opened(attempt.hello.communicator, attempt.rank, attempt.hello.lane, std::move(attempt.socket));
}

void Connector::encrypt(Attempt& attempt, const Opened& opened) {
  const int error = attempt.socket.shake_hands();
  if (error == EAGAIN) return;
  if (error == EBADMSG) throw meddled_with(attempt.place);
  if (error != 0) throw Dropped(closed_in_handshake(attempt.place, error));
  attempt.stage = Stage::done;
  opened(attempt.hello.communicator, attempt.rank, attempt.hello.lane, std::move(attempt.socket));
}

}  // namespace tutti::bootstrap
