#include "tests/security/proxy.h"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <span>
#include <utility>

#include "base/deadline.h"
#include "transport/bootstrap/handshake/socket.h"

namespace tutti::testing {

namespace {

constexpr std::chrono::milliseconds kLook{20};
constexpr std::chrono::seconds kPatience{20};

}  // namespace

Proxy::Proxy(uint16_t to, Meddle meddle, Route route)
    : to_(to),
      meddle_(std::move(meddle)),
      route_(std::move(route)),
      listener_(bootstrap::listen_on(bootstrap::resolve("127.0.0.1", 0).front())),
      port_(bootstrap::local_address(listener_.get()).port()),
      thread_([this](const std::stop_token& stop) { serve(stop); }) {}

Proxy::~Proxy() {
  thread_.request_stop();
  thread_.join();
}

std::vector<Proxy::Heard> Proxy::heard() const {
  const std::lock_guard lock(mutex_);
  return heard_;
}

std::string Proxy::all() const {
  std::string all;
  for (const Heard& one : heard()) all += one.by_connector + one.by_acceptor;
  return all;
}

void Proxy::serve(const std::stop_token& stop) {
  bootstrap::PollSet set;
  while (!stop.stop_requested()) {
    inject_what_is_due();
    set.add(listener_.get(), POLLIN, [this](short) { accept(); });
    for (Pair& pair : pairs_) {
      set.add(pair.connector.get(), POLLIN, [&](short) { pass_on(pair, true); });
      set.add(pair.acceptor.get(), POLLIN, [&](short) { pass_on(pair, false); });
    }
    set.wake_at(Clock::now() + kLook);
    set.run();
    pairs_.remove_if([](const Pair& pair) { return pair.ended; });
  }
}

void Proxy::inject(size_t connection, const std::string& bytes) {
  const std::lock_guard lock(mutex_);
  to_inject_.emplace_back(connection, bytes);
}

void Proxy::inject_what_is_due() {
  const std::lock_guard lock(mutex_);
  for (const auto& [connection, bytes] : std::exchange(to_inject_, {})) {
    for (const Pair& pair : pairs_) {
      if (pair.number != connection) continue;
      bootstrap::write_exactly(pair.acceptor.get(), std::as_bytes(std::span(bytes)),
                               Deadline::after(kPatience));
    }
  }
}

void Proxy::accept() {
  Pair pair{.number = heard_.size()};
  pair.connector = Fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  const uint16_t elsewhere = route_ ? route_(pair.number) : 0;
  const auto there = bootstrap::resolve("127.0.0.1", elsewhere != 0 ? elsewhere : to_).front();
  // If the acceptor cannot be reached, the connector's connection is closed at once, and the
  // connector tries again.
  if (bootstrap::try_connect(there, Deadline::after(kPatience), pair.acceptor) != 0) return;
  const std::lock_guard lock(mutex_);
  heard_.emplace_back();
  pairs_.push_back(std::move(pair));
}

void Proxy::pass_on(Pair& pair, bool from_connector) {
  if (pair.ended) return;
  const Fd& from = from_connector ? pair.connector : pair.acceptor;
  const Fd& to = from_connector ? pair.acceptor : pair.connector;
  std::array<char, 65536> block;
  const ssize_t got = ::recv(from.get(), block.data(), block.size(), MSG_DONTWAIT);
  if (got < 0 && errno == EAGAIN) return;
  if (got <= 0) {
    pair.ended = true;
    return;
  }
  std::string bytes(block.data(), static_cast<size_t>(got));
  {
    const std::lock_guard lock(mutex_);
    Heard& heard = heard_[pair.number];
    std::string& said = from_connector ? heard.by_connector : heard.by_acceptor;
    const size_t before = said.size();
    said += bytes;
    if (from_connector && meddle_) meddle_(pair.number, before, bytes);
  }
  bootstrap::write_exactly(to.get(), std::as_bytes(std::span(bytes)), Deadline::after(kPatience));
}

}  // namespace tutti::testing
