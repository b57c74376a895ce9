// Connections that break and go on. Between the two ends is a network of this test's: it carries
// from one socket to another, to the byte as far as it is told, and takes no more than it carries.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/error.h"
#include "base/fd.h"
#include "transport/tcp/tcp_transport.h"
#include "transport/wait_set.h"

namespace tutti {
namespace {

constexpr int kSender = 0;
constexpr int kReader = 1;
constexpr int kLane = 0;
constexpr std::chrono::seconds kPatience{60};

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
  Fd inner;  // the network's
};

class Cable {
 public:
  explicit Cable(size_t carries) : left_(carries) {}

  Fd take_sender() { return std::move(sender_.outer); }
  Fd take_reader() { return std::move(reader_.outer); }
  void carry_all() { left_ = SIZE_MAX; }
  void set(size_t carries) { left_ = carries; }
  // Takes so much more than it delivers before it breaks.
  void swallow(size_t bytes) { swallowed_ = bytes; }

  bool carry() {
    bool moved = move(reader_.inner, sender_.inner, SIZE_MAX) > 0;
    if (broken_) return moved;
    const size_t carried = move(sender_.inner, reader_.inner, left_);
    if (left_ != SIZE_MAX) left_ -= carried;
    if (left_ == 0 && !swallow()) tear();
    return moved || carried > 0;
  }

 private:
  static size_t move(const Fd& from, const Fd& to, size_t limit) {
    std::array<std::byte, 4096> bytes{};
    const ssize_t got = ::recv(from.get(), bytes.data(), std::min(limit, bytes.size()), 0);
    if (got <= 0) return 0;
    EXPECT_EQ(::send(to.get(), bytes.data(), static_cast<size_t>(got), MSG_NOSIGNAL), got);
    return static_cast<size_t>(got);
  }
  bool swallow() {
    std::array<std::byte, 4096> bytes{};
    const size_t limit = std::min(swallowed_, bytes.size());
    const ssize_t got = ::recv(sender_.inner.get(), bytes.data(), limit, 0);
    swallowed_ -= static_cast<size_t>(std::max<ssize_t>(got, 0));
    return swallowed_ > 0;
  }
  // What it has not taken stays unconfirmed as long as the socket is there.
  void tear() {
    broken_ = true;
    ::shutdown(sender_.inner.get(), SHUT_RDWR);
    ::shutdown(reader_.inner.get(), SHUT_RDWR);
  }

  Pair sender_;
  Pair reader_;
  size_t left_;
  size_t swallowed_ = 0;
  bool broken_ = false;
};

// Two ranks, and what is sent from the first to the second.
class Network {
 public:
  // The n-th connection breaks after so many bytes of it; those after the last do not.
  explicit Network(std::vector<size_t> breaks, bool encrypted = false)
      : breaks_(std::move(breaks)), encrypted_(encrypted) {
    for (const int rank : {kSender, kReader}) {
      TcpTransport::Hooks hooks;
      hooks.open = [this, rank](int, int, Renewal renewal) {
        ASSERT_EQ(rank, kSender);
        EXPECT_EQ(renewal.number, static_cast<int>(cables_.size()));
        open(renewal.number);
      };
      hooks.lost = [this](int, bool, const std::string& text) { lost_.push_back(text); };
      hooks.gone = [this](int) { return gone_; };
      const std::array<int, 1> other = {1 - rank};
      ends_.push_back(std::make_unique<TcpTransport>(2, 1, std::move(hooks), other));
    }
  }

  TcpTransport& sender() { return *ends_[kSender]; }
  TcpTransport& reader() { return *ends_[kReader]; }
  Cable& cable() { return *cables_.back(); }
  size_t connections() const { return cables_.size(); }
  const std::vector<std::string>& lost() const { return lost_; }
  void swallow(size_t bytes) { swallowed_ = bytes; }
  void say_gone() { gone_ = true; }
  // The reader gets no second connection before deliver().
  void withhold() { withholds_ = true; }
  void deliver() { reader().accept(kSender, kLane, 1, std::move(withheld_)); }

  // A turn of everybody's.
  void turn() {
    bool moved = sender().progress();
    moved |= reader().progress();
    for (const auto& cable : cables_) moved |= cable->carry();
    // Whoever has nothing to do would sleep, and looks at its connections before.
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
    if (encrypted_) shake_hands(from, to);
    if (index < breaks_.size()) cables_.back()->set(breaks_[index]);
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

  const std::vector<size_t> breaks_;
  const bool encrypted_;
  size_t swallowed_ = 0;
  bool gone_ = false;
  bool withholds_ = false;
  ByteStream withheld_;
  std::vector<std::string> lost_;
  WaitSet set_{""};
  std::vector<std::unique_ptr<TcpTransport>> ends_;
  std::vector<std::unique_ptr<Cable>> cables_;
};

// Messages of these sizes, every second one straight from the caller's memory; taken in place or
// read by turns.
class Talk {
 public:
  Talk(Network& network, std::vector<size_t> sizes)
      : network_(network), sizes_(std::move(sizes)), into_(*std::ranges::max_element(sizes_)) {}

  // Until all have come, or a connection is lost.
  void hold() {
    const Deadline deadline = Deadline::after(kPatience);
    while (came_ < sizes_.size() && network_.lost().empty()) {
      ASSERT_FALSE(deadline.passed()) << came_ << " messages of " << sizes_.size();
      while (sent_ < sizes_.size() && send_next()) {
      }
      while (came_ < sizes_.size() && take()) ++came_;
      network_.turn();
    }
  }
  size_t came() const { return came_; }
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
    EXPECT_TRUE(std::ranges::equal(into, payload(came_))) << came_;
    reader.release(kSender, kLane);
    return true;
  }

  Network& network_;
  const std::vector<size_t> sizes_;
  std::vector<std::byte> into_;
  size_t sent_ = 0;
  size_t came_ = 0;
};

const std::vector<size_t> kFewSizes = {0, 24, 300, 3, 0, 1, 50};

size_t bytes_on_the_wire(const std::vector<size_t>& sizes) {
  constexpr size_t kFrameBytes = 56;
  size_t bytes = 0;
  for (const size_t size : sizes) bytes += kFrameBytes + size;
  return bytes;
}

TEST(Resume, AfterABreakAtAnyByte) {
  const size_t bytes = bytes_on_the_wire(kFewSizes);
  for (size_t at = 1; at < bytes; ++at) {
    SCOPED_TRACE(at);
    Network network({at});
    Talk talk(network, kFewSizes);
    talk.hold();
    ASSERT_EQ(talk.came(), kFewSizes.size());
    ASSERT_EQ(network.connections(), 2U);
    ASSERT_TRUE(network.lost().empty()) << network.lost().front();
  }
}

TEST(Resume, AfterABreakAtAnyByteOfAnEncryptedConnection) {
  for (size_t at = 1; at < bytes_on_the_wire(kFewSizes); at += 3) {
    SCOPED_TRACE(at);
    Network network({at}, true);
    Talk talk(network, kFewSizes);
    talk.hold();
    ASSERT_EQ(talk.came(), kFewSizes.size());
    ASSERT_EQ(network.connections(), 2U);
    ASSERT_TRUE(network.lost().empty()) << network.lost().front();
  }
}

// The breaks are anywhere, also before a reader's word has come, which takes no byte of the
// sender's.
TEST(Resume, AgainAndAgain) {
  std::mt19937 random(7);
  for (const bool encrypted : {false, true}) {
    for (int round = 0; round < 5; ++round) {
      SCOPED_TRACE(testing::Message() << encrypted << ' ' << round);
      std::vector<size_t> sizes(40);
      for (size_t& size : sizes) size = random() % 5 == 0 ? random() % (512 << 10) : random() % 500;
      std::vector<size_t> breaks(5);
      for (size_t& at : breaks) at = 1 + random() % (200 << 10);
      Network network(breaks, encrypted);
      Talk talk(network, sizes);
      talk.hold();
      ASSERT_EQ(talk.came(), sizes.size());
      ASSERT_TRUE(network.lost().empty()) << network.lost().front();
    }
  }
}

TEST(Resume, TakesNothingForConfirmedBeforeTheReaderHasSpoken) {
  Network network({60});
  network.withhold();
  Talk talk(network, {50, 50, 50});
  EXPECT_TRUE(talk.send_next());
  EXPECT_TRUE(talk.send_next());
  EXPECT_TRUE(network.cable().carry());
  EXPECT_TRUE(talk.send_next()) << "it is kept";
  ASSERT_EQ(network.connections(), 2U);
  network.sender().progress();
  network.sender().settled();  // looks at its connections
  network.deliver();
  talk.hold();
  EXPECT_EQ(talk.came(), 3U);
  EXPECT_TRUE(network.lost().empty());
}

TEST(Resume, IsNotWhereBytesWereConfirmedThatDidNotArrive) {
  Network network({100});
  network.swallow(1 << 20);
  Talk talk(network, std::vector<size_t>(10, 200 << 10));
  talk.hold();
  ASSERT_EQ(network.lost().size(), 1U);
  EXPECT_NE(network.lost().front().find("bytes got lost"), std::string::npos);
}

TEST(Resume, IsNotOfAPeerThatHasGone) {
  Network network({100});
  network.say_gone();
  Talk talk(network, {50, 50, 50, 50});
  talk.hold();
  network.turn();
  ASSERT_EQ(network.connections(), 1U);
  EXPECT_EQ(network.lost().size(), 2U) << "each end tells once";
}

TEST(Resume, TakesNoConnectionThatIsOlderThanItsOwn) {
  Network network({90, 40});
  Talk talk(network, {50, 50, 50, 50});
  talk.hold();
  ASSERT_EQ(talk.came(), 4U);
  Pair old;
  network.reader().accept(kSender, kLane, 1, std::move(old.outer));
  network.turn();
  char byte = 0;
  EXPECT_EQ(::recv(old.inner.get(), &byte, 1, 0), 0) << "it was closed";
}

}  // namespace
}  // namespace tutti
