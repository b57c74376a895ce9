// Connects two TCP transports by a simulated network. The network forwards between sockets exactly
// as many bytes as a test allows, accepts no more than it forwards, and damages bytes on request.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "base/fd.h"
#include "transport/tcp/tcp_transport.h"
#include "transport/wait_set.h"

namespace tutti::testing {

inline constexpr int kSender = 0;
inline constexpr int kReader = 1;
inline constexpr int kLane = 0;
inline constexpr std::chrono::seconds kPatience{60};

struct Pair {
  Pair() {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) != 0) {
      throw system_error("socketpair", errno);
    }
    outer = Fd(ends[0]);
    inner = Fd(ends[1]);
  }
  Fd outer;
  Fd inner;  // the end that the network reads and writes
};

// Changes `size` bytes (at most 4096), beginning with byte `at`, in one direction.
struct Damage {
  size_t at = 0;
  size_t size = 0;
  std::function<void(std::vector<std::byte>&)> change;
};

// Exchanges the 16-bit words at byte `at` and at byte `at` + `distance`.
inline Damage swap_words(size_t at, size_t distance) {
  return {at, distance + 2, [distance](std::vector<std::byte>& bytes) {
            std::swap_ranges(bytes.begin(), bytes.begin() + 2,
                             bytes.begin() + static_cast<ptrdiff_t>(distance));
          }};
}

class Cable {
 public:
  explicit Cable(size_t carries) : left_(carries) {}

  Fd take_sender() { return std::move(sender_.outer); }
  Fd take_reader() { return std::move(reader_.outer); }
  void carry_all() { left_ = SIZE_MAX; }
  void set(size_t carries) { left_ = carries; }
  // Before it breaks, the network accepts `bytes` more bytes than it delivers.
  void swallow(size_t bytes) { swallowed_ = bytes; }
  void damage_sent(const std::optional<Damage>& damage) { there_.damage = damage; }
  void damage_answer(const std::optional<Damage>& damage) { back_.damage = damage; }

  bool carry() {
    bool moved = move(reader_.inner, sender_.inner, SIZE_MAX, back_) > 0;
    if (broken_) return moved;
    const size_t carried = move(sender_.inner, reader_.inner, left_, there_);
    if (left_ != SIZE_MAX) left_ -= carried;
    if (left_ == 0 && !swallow()) tear();
    return moved || carried > 0;
  }

 private:
  struct Way {
    size_t carried = 0;
    std::optional<Damage> damage;
  };

  // Returns how many of the `there` available bytes are forwarded next, and whether they are
  // damaged.
  static std::pair<size_t, bool> next(const Way& way, size_t there) {
    if (!way.damage || way.damage->at < way.carried || way.damage->at >= way.carried + there) {
      return {there, false};
    }
    if (way.damage->at > way.carried) return {way.damage->at - way.carried, false};
    return {there < way.damage->size ? 0 : way.damage->size, true};
  }
  static size_t move(const Fd& from, const Fd& to, size_t limit, Way& way) {
    std::vector<std::byte> bytes(std::min<size_t>(limit, 4096));
    const ssize_t there = ::recv(from.get(), bytes.data(), bytes.size(), MSG_PEEK);
    if (there <= 0) return 0;
    const auto [size, damaged] = next(way, static_cast<size_t>(there));
    if (size == 0) return 0;
    bytes.resize(size);
    EXPECT_EQ(::recv(from.get(), bytes.data(), size, 0), static_cast<ssize_t>(size));
    way.carried += size;
    if (damaged) std::exchange(way.damage, std::nullopt)->change(bytes);
    EXPECT_EQ(::send(to.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
    return size;
  }
  bool swallow() {
    std::array<std::byte, 4096> bytes{};
    const size_t limit = std::min(swallowed_, bytes.size());
    const ssize_t got = ::recv(sender_.inner.get(), bytes.data(), limit, 0);
    swallowed_ -= static_cast<size_t>(std::max<ssize_t>(got, 0));
    return swallowed_ > 0;
  }
  // While the socket exists, bytes that the network has not accepted remain unacknowledged.
  void tear() {
    broken_ = true;
    ::shutdown(sender_.inner.get(), SHUT_RDWR);
    ::shutdown(reader_.inner.get(), SHUT_RDWR);
  }

  Pair sender_;
  Pair reader_;
  Way there_;
  Way back_;
  size_t left_;
  size_t swallowed_ = 0;
  bool broken_ = false;
};

struct Wiring {
  std::vector<size_t> breaks = {};  // bytes after which each connection breaks
  bool encrypted = false;
  bool checked = true;
  std::optional<Damage> sent = {};    // damages bytes on the first connection
  std::optional<Damage> answer = {};  // damages bytes from the reader on the second connection
};

// The transports of a sending and a receiving rank, and the simulated connections (Cable) that the
// sender has opened. Records lost connections and corrupted data.
class Network {
 public:
  explicit Network(Wiring wiring) : wiring_(std::move(wiring)) {
    for (const int rank : {kSender, kReader}) {
      TcpTransport::Hooks hooks;
      hooks.open = [this, rank](int, int, Renewal renewal) {
        ASSERT_EQ(rank, kSender);
        EXPECT_EQ(renewal.number, static_cast<int>(cables_.size()));
        open(renewal.number);
      };
      hooks.lost = [this](int, bool, const std::string& text) { lost_.push_back(text); };
      hooks.corrupted = [this, rank](int peer, const std::string& text) {
        EXPECT_EQ(peer, 1 - rank);
        corrupted_.push_back(text);
      };
      hooks.gone = [this](int) { return gone_; };
      const std::array<int, 1> other = {1 - rank};
      TcpTransport::Peers peers{.resumed = other};
      if (wiring_.checked) peers.checked = other;
      ends_.push_back(std::make_unique<TcpTransport>(2, 1, std::move(hooks), peers));
    }
  }

  TcpTransport& sender() { return *ends_[kSender]; }
  TcpTransport& reader() { return *ends_[kReader]; }
  Cable& cable() { return *cables_.back(); }
  size_t connections() const { return cables_.size(); }
  const std::vector<std::string>& lost() const { return lost_; }
  const std::vector<std::string>& corrupted() const { return corrupted_; }
  bool failed() const { return !lost_.empty() || !corrupted_.empty(); }
  void swallow(size_t bytes) { swallowed_ = bytes; }
  void say_gone() { gone_ = true; }
  // Keeps the second connection from the reader until deliver().
  void withhold() { withholds_ = true; }
  void deliver() { reader().accept(kSender, kLane, 1, std::move(withheld_)); }

  // Progresses both ranks and all connections once.
  void turn() {
    bool moved = sender().progress();
    moved |= reader().progress();
    for (const auto& cable : cables_) moved |= cable->carry();
    // An idle rank checks its connections before it sleeps.
    if (moved) return;
    for (const auto& end : ends_) end->arm(set_);
  }

 private:
  void open(int number) {
    const size_t index = cables_.size();
    cables_.push_back(std::make_unique<Cable>(SIZE_MAX));
    cables_.back()->swallow(swallowed_);
    ByteStream from(cables_.back()->take_sender());
    ByteStream to(cables_.back()->take_reader());
    if (wiring_.encrypted) shake_hands(from, to);
    if (index < wiring_.breaks.size()) cables_.back()->set(wiring_.breaks[index]);
    if (index == 0) cables_.back()->damage_sent(wiring_.sent);
    if (index == 1) cables_.back()->damage_answer(wiring_.answer);
    if (withholds_ && number > 0) {
      withheld_ = std::move(to);
    } else {
      reader().accept(kSender, kLane, number, std::move(to));
    }
    sender().opened(kReader, kLane, std::move(from));
  }

  void shake_hands(ByteStream& from, ByteStream& to) {
    const TlsKey key = {1, 2, 3};
    from.encrypt(TlsSide::connects, key);
    to.encrypt(TlsSide::accepts, key);
    int connecting = EAGAIN;
    int accepting = EAGAIN;
    while (connecting == EAGAIN || accepting == EAGAIN) {
      if (connecting == EAGAIN) connecting = from.shake_hands();
      while (cables_.back()->carry()) {
      }
      if (accepting == EAGAIN) accepting = to.shake_hands();
      while (cables_.back()->carry()) {
      }
    }
    ASSERT_EQ(connecting, 0);
    ASSERT_EQ(accepting, 0);
  }

  const Wiring wiring_;
  size_t swallowed_ = 0;
  bool gone_ = false;
  bool withholds_ = false;
  ByteStream withheld_;
  std::vector<std::string> lost_;
  std::vector<std::string> corrupted_;
  WaitSet set_{""};
  std::vector<std::unique_ptr<TcpTransport>> ends_;
  std::vector<std::unique_ptr<Cable>> cables_;
};

// Sends messages of these sizes over a network. The sender sends every second message directly from
// the caller's memory. The reader uses messages in place and copies them, in turns.
class Talk {
 public:
  Talk(Network& network, std::vector<size_t> sizes)
      : network_(network), sizes_(std::move(sizes)), into_(*std::ranges::max_element(sizes_)) {}

  // Progresses until all messages have arrived or a connection has failed.
  void hold() {
    const Deadline deadline = Deadline::after(kPatience);
    while (came_ < sizes_.size() && !network_.failed()) {
      ASSERT_FALSE(deadline.passed()) << came_ << " messages of " << sizes_.size();
      while (sent_ < sizes_.size() && send_next()) {
      }
      while (came_ < sizes_.size() && take()) ++came_;
      network_.turn();
    }
  }
  size_t came() const { return came_; }
  size_t wrong() const { return wrong_; }  // number of received messages with wrong contents
  bool send_next() {
    if (!send()) return false;
    ++sent_;
    return true;
  }

 private:
  static std::byte pattern(size_t message, size_t at) {
    return static_cast<std::byte>(message * 31 + at + at / 255);
  }
  std::vector<std::byte> payload(size_t message) const {
    std::vector<std::byte> bytes(sizes_[message]);
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = pattern(message, i);
    return bytes;
  }

  bool send() {
    const std::vector<std::byte> bytes = payload(sent_);
    const MessageHeader header{.call = static_cast<uint32_t>(sent_ + 1),
                               .bytes = static_cast<uint32_t>(bytes.size())};
    if (sent_ % 2 == 1) return network_.sender().write(kReader, kLane, header, bytes, 4);
    const std::array<int, 1> peers = {kReader};
    std::byte* const slot = network_.sender().reserve(peers, kLane, bytes.size(), 4);
    if (slot == nullptr) return false;
    std::ranges::copy(bytes, slot);
    network_.sender().commit(header);
    return true;
  }

  bool take() {
    TcpTransport& reader = network_.reader();
    const MessageHeader* const header = reader.front(kSender, kLane);
    if (header == nullptr) return false;
    EXPECT_EQ(header->call, came_ + 1);
    EXPECT_EQ(header->bytes, sizes_[came_]);
    if (header->bytes != sizes_[came_]) return false;
    const std::span<std::byte> into = std::span(into_).first(header->bytes);
    if (came_ % 3 == 0) {
      const std::byte* const bytes = reader.payload(kSender, kLane);
      if (bytes == nullptr) return false;
      std::copy_n(bytes, into.size(), into.begin());
    } else if (!reader.read(kSender, kLane, into, Store::cached)) {
      return false;
    }
    if (!std::ranges::equal(into, payload(came_))) ++wrong_;
    reader.release(kSender, kLane);
    return true;
  }

  Network& network_;
  const std::vector<size_t> sizes_;
  std::vector<std::byte> into_;
  size_t sent_ = 0;
  size_t came_ = 0;
  size_t wrong_ = 0;
};

inline const std::vector<size_t> kFewSizes = {0, 24, 300, 3, 0, 1, 50};

inline constexpr size_t kFrameBytes = 56;

inline size_t bytes_on_the_wire(const std::vector<size_t>& sizes) {
  size_t bytes = 0;
  for (const size_t size : sizes) bytes += kFrameBytes + size;
  return bytes;
}

}  // namespace tutti::testing
