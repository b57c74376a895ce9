#include "transport/bootstrap/handshake/connector.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ranges>

#include "base/descriptor_limit.h"
#include "base/error.h"
#include "base/network_timeout.h"
#include "base/text.h"
#include "transport/bootstrap/handshake/socket.h"

namespace tutti::bootstrap {

namespace {

constexpr std::chrono::seconds kTimeToOpen{30};  // long, because a busy link may lose some SYNs
constexpr std::chrono::milliseconds kTimeToOpenPerRank{20};
constexpr std::chrono::milliseconds kLongestConnectPause{500};

bool renews(const Hello& hello) { return hello.number > 0; }

// Thrown if the connection ended before the handshake was complete.
class Dropped : public Error {
 public:
  using Error::Error;
  Dropped(const Error& error) : Error(error) {}  // NOLINT
};

// Continues to read `message`, whose first `received` bytes have arrived already. Returns true once
// the message is complete. Throws if the connection ended or the peer does not speak this protocol.
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

std::chrono::milliseconds Connector::time_to_open(const Hello& hello) const {
  return (renews(hello) ? network_timeout() : kTimeToOpen) + world_size_ * kTimeToOpenPerRank;
}

void Connector::start(const PeerInfo& peer, int rank, const Hello& hello, const std::string& whom,
                      int detours) {
  Attempt& attempt = attempts_.emplace_back();
  attempt.hello = hello;
  attempt.hello.to = rank;
  attempt.rank = rank;
  attempt.whom = whom;
  attempt.rails = {{peer.address, peer.port}};
  for (size_t rail = 1; rail < std::min(own_.size(), peer.rails()); ++rail) {
    attempt.rails.push_back(peer.more_rails[rail - 1]);
  }
  attempt.give_up = Clock::now() + time_to_open(hello);
  const size_t first = static_cast<size_t>(hello.lane) + static_cast<size_t>(detours);
  if (detours > 0) silent_.emplace(rank, (first - 1) % attempt.rails.size());
  try {
    choose_rail(attempt, first);
    connect(attempt);
  } catch (const Error& error) {
    try_next_rail(attempt, error);
  }
}

void Connector::choose_rail(Attempt& attempt, size_t first) {
  const size_t rails = attempt.rails.size();
  attempt.rail = first % rails;
  for (size_t i = 0; i < rails; ++i) {
    const size_t rail = (first + i) % rails;
    if (silent_.contains({attempt.rank, rail})) continue;
    attempt.rail = rail;
    break;
  }
  const RailAddress& there = attempt.rails[attempt.rail];
  attempt.place = cat(attempt.whom, " at ", endpoint_text(there.address, there.port));
  // The address is numeric, so this does not query a name server.
  attempt.address = resolve(there.address, there.port).front();
  attempt.own = nullptr;
  if (rails == 1) return;
  if (own_[attempt.rail].family() == attempt.address.family()) {
    attempt.own = &own_[attempt.rail];
    attempt.place +=
        cat(" from ", attempt.own->host(), " (rail ", attempt.rail, " of ", rails, ")");
  }
  if (renews(attempt.hello)) {
    attempt.next_rail_at = Clock::now() + network_timeout() / (2 * rails);
  }
}

// Repeats the attempt if it is for a replacement connection, which may succeed over another rail,
// or later over the same rail. Other attempts fail. So does every attempt that lacks descriptors,
// and a replacement of a link whose peer's process is gone.
void Connector::try_next_rail(Attempt& attempt, const Error& error) {
  const bool gone = attempt.refused && attempt.hello.purpose != Purpose::data;
  if (!renews(attempt.hello) || gone || error.code() == ErrorCode::system) {
    attempt.failure = error;
    return;
  }
  attempt.last_failure = error.what();
  pause(attempt);
  silent_.emplace(attempt.rank, attempt.rail);
  const auto is_silent = [&](size_t rail) { return silent_.contains({attempt.rank, rail}); };
  if (std::ranges::all_of(std::views::iota(size_t{0}, attempt.rails.size()), is_silent)) {
    std::erase_if(silent_, [&](const auto& entry) { return entry.first == attempt.rank; });
  }
  choose_rail(attempt, attempt.rail + 1);
}

Error Connector::too_late(const Attempt& attempt) const {
  const auto time = time_to_open(attempt.hello).count();
  if (renews(attempt.hello)) {
    const std::string_view last = attempt.last_failure;
    return {
        ErrorCode::connection_lost,
        cat("the connection to ", attempt.place, " broke and was not re-established within ", time,
            " ms", last.empty() ? "" : "; last attempt: ", last),
        {.cause = "the network between the two hosts is down, or a firewall closes connections"}};
  }
  return {ErrorCode::connection_lost,
          cat("no connection to ", attempt.place, " within ", time, " ms"),
          {.cause = "that rank is stopped or out of descriptors (then it reports so), or a "
                    "firewall blocks the connection",
           .remedy = "open all TCP ports between the hosts; TUTTI_INTERFACE selects the "
                     "networks"}};
}

// Builds the error for a failed connect. This side chose the rail, so its own configuration may be
// wrong.
Error Connector::unreachable(const Attempt& attempt, int error) {
  if (attempt.own == nullptr || error == ECONNREFUSED || is_descriptor_shortage(error)) {
    return connect_error(attempt.place, error);
  }
  return {
      ErrorCode::connection_lost,
      cat("no connection to ", attempt.place, ": ", std::strerror(error), " (errno ", error, ")"),
      {.cause = "these two addresses have no route to each other, or a firewall blocks it, or "
                "TUTTI_INTERFACE lists the interfaces in another order there",
       .remedy = "let TUTTI_INTERFACE list, in the same order on all hosts, only interfaces "
                 "whose networks reach all of them"}};
}

void Connector::connect(Attempt& attempt) {
  Fd socket;
  attempt.refused = false;
  const int error = begin_connect(attempt.address, socket, attempt.own);
  attempt.socket = std::move(socket);
  if (error != 0 && error != EINPROGRESS) return fail_connect(attempt, error);
  attempt.stage = Stage::connecting;
}

// Handles the errno of a failed connect. If the network is down, a first connection is retried for
// TUTTI_NETWORK_TIMEOUT, because a shorter outage may only delay calls.
void Connector::fail_connect(Attempt& attempt, int error) {
  attempt.refused = error == ECONNREFUSED;
  if (!renews(attempt.hello) && is_silence(error)) {
    const Clock::time_point now = Clock::now();
    if (!attempt.down_until) attempt.down_until = now + network_timeout();
    // The last attempt then fails with the errno, which says more than that time has passed.
    attempt.give_up = std::max(attempt.give_up, *attempt.down_until + 2 * kLongestConnectPause);
    if (now < *attempt.down_until) return pause(attempt);
  }
  throw unreachable(attempt, error);
}

void Connector::pause(Attempt& attempt) {
  attempt.socket.reset();
  attempt.received = 0;
  attempt.stage = Stage::pausing;
  attempt.resume_at = Clock::now() + attempt.pause;
  attempt.pause = std::min(2 * attempt.pause, kLongestConnectPause);
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
      attempt.failure = too_late(attempt);
    } else if (attempt.next_rail_at && now >= *attempt.next_rail_at) {
      try_next_rail(attempt, connect_error(attempt.place, ETIMEDOUT));
    }
    if (!attempt.failure) continue;
    attempt.stage = Stage::done;
    failed(attempt.hello.communicator, attempt.rank, *attempt.failure);
  }
  attempts_.remove_if([](const Attempt& attempt) { return attempt.stage == Stage::done; });
  for (Attempt& attempt : attempts_) {
    set.wake_at(attempt.give_up);
    if (attempt.next_rail_at) set.wake_at(*attempt.next_rail_at);
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
    try_next_rail(attempt, error);
  }
}

void Connector::finish_connect(Attempt& attempt) {
  const int error = end_connect(attempt.socket.get());
  if (error != 0) return fail_connect(attempt, error);
  attempt.down_until.reset();
  attempt.stage = Stage::reading_challenge;
}

void Connector::answer_challenge(Attempt& attempt) {
  attempt.hello = sign_hello(attempt.hello, attempt.challenge, key_, attempt.place);
  // A new socket's buffer has room for the hello.
  if (::send(attempt.socket.get(), &attempt.hello, sizeof(Hello), MSG_NOSIGNAL | MSG_DONTWAIT) !=
      sizeof(Hello)) {
    throw Dropped(closed_in_handshake(attempt.place, errno));
  }
  attempt.stage = Stage::reading_verdict;
}

void Connector::read_verdict(Attempt& attempt, const Opened& opened) {
  attempt.refused = attempt.verdict.refusal == Refusal::given_up;
  check_verdict(attempt.verdict, attempt.challenge, attempt.hello, key_, attempt.place);
  if (attempt.hello.encrypted != 0) {
    attempt.socket.encrypt(TlsSide::connects, tls_key(key_, attempt.challenge, attempt.hello));
    attempt.stage = Stage::encrypting;
    return encrypt(attempt, opened);
  }
  finish(attempt, opened);
}

void Connector::encrypt(Attempt& attempt, const Opened& opened) {
  const int error = attempt.socket.shake_hands();
  if (error == EAGAIN) return;
  if (error == EBADMSG) throw meddled_with(attempt.place);
  if (error != 0) throw Dropped(closed_in_handshake(attempt.place, error));
  finish(attempt, opened);
}

// Hands over the connection. Keepalive stays enabled on a replacement connection, because its
// sender first waits for the reader's position, and would wait forever if the network failed.
void Connector::finish(Attempt& attempt, const Opened& opened) {
  attempt.stage = Stage::done;
  silent_.erase({attempt.rank, attempt.rail});
  if (attempt.hello.purpose == Purpose::data && !renews(attempt.hello)) {
    clear_keepalive(attempt.socket.get());
  }
  opened(attempt.hello.communicator, attempt.rank, attempt.hello.lane, std::move(attempt.socket));
}

}  // namespace tutti::bootstrap
