#include "transport/bootstrap/connector.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/text.h"
#include "transport/bootstrap/socket.h"

namespace tutti::bootstrap {

namespace {

constexpr std::chrono::seconds kTimeToOpen{10};

// Reads on into `message`, of which `received` bytes are there. True once it is whole; throws when
// the connection ended or the other side does not speak this protocol.
template <typename T>
bool receive(int socket, T& message, size_t& received, const std::string& place) {
  auto* bytes = reinterpret_cast<char*>(&message);
  const ssize_t got = ::recv(socket, bytes + received, sizeof(T) - received, MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (got <= 0) throw closed_in_handshake(place, got == 0 ? 0 : errno);
  received += static_cast<size_t>(got);
  require_magic({bytes, std::min(received, kMagic.size())}, place);
  if (received < sizeof(T)) return false;
  received = 0;
  return true;
}

}  // namespace

void Connector::start(const PeerInfo& peer, int rank, const Hello& hello, const std::string& whom) {
  Attempt& attempt = attempts_.emplace_back();
  attempt.hello = hello;
  attempt.rank = rank;
  attempt.place = cat(whom, " at ", endpoint_text(peer.address, peer.port));
  attempt.give_up = Clock::now() + kTimeToOpen;
  try {
    // The address is numeric, so this waits for no name server.
    const int error = begin_connect(resolve(peer.address, peer.port).front(), attempt.socket);
    if (error != 0 && error != EINPROGRESS) throw connect_error(attempt.place, error);
  } catch (const Error& error) {
    attempt.failure = error.what();
  }
}

void Connector::drop(uint64_t communicator) {
  attempts_.remove_if(
      [=](const Attempt& attempt) { return attempt.hello.communicator == communicator; });
}

void Connector::watch(PollSet& set, const Opened& opened, const Failed& failed) {
  const Clock::time_point now = Clock::now();
  for (Attempt& attempt : attempts_) {
    if (attempt.stage == Stage::done) continue;
    if (attempt.failure.empty() && now >= attempt.give_up) {
      attempt.failure = cat("no connection to ", attempt.place, " within ", kTimeToOpen.count(),
                            " s; likely cause: that rank is stopped, or a firewall is between");
    }
    if (attempt.failure.empty()) continue;
    attempt.stage = Stage::done;
    failed(attempt.hello.communicator, attempt.rank, attempt.failure);
  }
  attempts_.remove_if([](const Attempt& attempt) { return attempt.stage == Stage::done; });
  for (Attempt& attempt : attempts_) {
    const short events = attempt.stage == Stage::connecting ? POLLOUT : POLLIN;
    set.add(attempt.socket.get(), events,
            [this, &attempt, opened](short) { advance(attempt, opened); });
    set.wake_at(attempt.give_up);
  }
}

void Connector::advance(Attempt& attempt, const Opened& opened) {
  const int socket = attempt.socket.get();
  try {
    switch (attempt.stage) {
      case Stage::connecting:
        return finish_connect(attempt);
      case Stage::reading_challenge:
        if (!receive(socket, attempt.challenge, attempt.received, attempt.place)) return;
        return answer_challenge(attempt);
      case Stage::reading_verdict:
        if (!receive(socket, attempt.verdict, attempt.received, attempt.place)) return;
        check_verdict(attempt.verdict, attempt.challenge, attempt.hello, key_, attempt.place);
        attempt.stage = Stage::done;
        return opened(attempt.hello.communicator, attempt.rank, attempt.hello.lane,
                      std::move(attempt.socket));
      case Stage::done:
        return;
    }
  } catch (const Error& error) {
    attempt.failure = error.what();
  }
}

void Connector::finish_connect(Attempt& attempt) {
  const int error = end_connect(attempt.socket.get());
  if (error != 0) throw connect_error(attempt.place, error);
  attempt.stage = Stage::reading_challenge;
}

void Connector::answer_challenge(Attempt& attempt) {
  attempt.hello = sign_hello(attempt.hello, attempt.challenge, key_, attempt.place);
  // A fresh socket has room for it.
  if (::send(attempt.socket.get(), &attempt.hello, sizeof(Hello), MSG_NOSIGNAL | MSG_DONTWAIT) !=
      sizeof(Hello)) {
    throw closed_in_handshake(attempt.place, errno);
  }
  attempt.stage = Stage::reading_verdict;
}

}  // namespace tutti::bootstrap
