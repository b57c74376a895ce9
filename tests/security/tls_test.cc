// Tests the two ends of an encrypted stream with an attacker on the wire in between.
#include "transport/stream/tls.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <vector>

#include "base/fd.h"
#include "transport/stream/byte_stream.h"

namespace tutti {
namespace {

constexpr TlsKey kKey = {1, 2, 3};
constexpr TlsKey kOtherKey = {1, 2, 4};

std::array<Fd, 2> socket_pair() {
  std::array<int, 2> ends{};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()), 0);
  return {Fd(ends[0]), Fd(ends[1])};
}

std::string take_all(int socket) {
  std::string all;
  std::array<char, 65536> block;
  for (ssize_t got = 0; (got = ::read(socket, block.data(), block.size())) > 0;) {
    all.append(block.data(), static_cast<size_t>(got));
  }
  return all;
}

struct LargeRecords {
  bool left;
  bool right;
};

// Parameter: the kind of records that each of the two ends uses for large data. Both kinds have the
// same wire format.
class TlsRecords : public ::testing::TestWithParam<LargeRecords> {};

INSTANTIATE_TEST_SUITE_P(Ends, TlsRecords,
                         ::testing::Values(LargeRecords{false, false}, LargeRecords{true, false},
                                           LargeRecords{false, true}, LargeRecords{true, true}),
                         [](const auto& info) {
                           const auto name = [](bool much) { return much ? "Much" : "Little"; };
                           return std::string(name(info.param.left)) + "To" +
                                  name(info.param.right);
                         });

// left - wire - right: data stays on the wire until the test forwards it.
class Wire {
 public:
  explicit Wire(const TlsKey& right_key = kKey) {
    std::array<Fd, 2> one = socket_pair();
    std::array<Fd, 2> two = socket_pair();
    left = std::move(one[0]);
    left_wire = std::move(one[1]);
    right_wire = std::move(two[0]);
    right = std::move(two[1]);
    left.encrypt(TlsSide::connects, kKey);
    right.encrypt(TlsSide::accepts, right_key);
  }
  std::string to_right() const { return take_all(left_wire.get()); }
  std::string to_left() const { return take_all(right_wire.get()); }
  void give_right(const std::string& bytes) const { give(right_wire, bytes); }
  void give_left(const std::string& bytes) const { give(left_wire, bytes); }
  // Completes the handshake and returns both ends' results.
  std::array<int, 2> shake_hands() {
    std::array<int, 2> said = {EAGAIN, EAGAIN};
    for (int turn = 0; turn < 4; ++turn) {
      if (said[0] == EAGAIN) said[0] = left.shake_hands();
      give_right(to_right());
      if (said[1] == EAGAIN) said[1] = right.shake_hands();
      give_left(to_left());
    }
    return said;
  }
  // Completes the handshake. Then each end uses OpenSSL's records, or our own for large data.
  void expect_hands_shaken(LargeRecords much) {
    ASSERT_THAT(shake_hands(), ::testing::Each(0));
    if (much.left) left.use_large_records();
    if (much.right) right.use_large_records();
  }

  ByteStream left;
  ByteStream right;
  Fd left_wire;
  Fd right_wire;

 private:
  static void give(const Fd& wire, const std::string& bytes) {
    if (bytes.empty()) return;
    EXPECT_EQ(::write(wire.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }
};

ssize_t say(ByteStream& stream, std::string_view head, std::string_view rest = {}) {
  return stream.send(std::as_bytes(std::span(head)), std::as_bytes(std::span(rest)));
}

// Reads the available data. Sets *error to the errno of a failed read, or to 0.
std::string hear(ByteStream& stream, int* error = nullptr) {
  std::string text(1 << 20, '\0');
  const ssize_t got = stream.receive(text.data(), text.size());
  if (error != nullptr) *error = got < 0 ? errno : 0;
  text.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  return text;
}

TEST_P(TlsRecords, CarriesDataAndRevealsNoneOfIt) {
  Wire wire;
  wire.expect_hands_shaken(GetParam());
  const std::string secret = "nobody else may read this";
  EXPECT_EQ(say(wire.left, "head: ", secret), 6 + static_cast<ssize_t>(secret.size()));
  const std::string seen = wire.to_right();
  EXPECT_EQ(seen.find("nobody"), std::string::npos);
  EXPECT_LT(seen.size(), secret.size() + 32) << "head and rest have a record each";
  wire.give_right(seen);
  EXPECT_EQ(hear(wire.right), "head: " + secret);
  EXPECT_EQ(say(wire.right, "and back"), 8);
  wire.give_left(wire.to_left());
  EXPECT_EQ(hear(wire.left), "and back");
}

TEST(Tls, AnotherKeyGivesNoConnection) {
  Wire wire(kOtherKey);
  EXPECT_THAT(wire.shake_hands(), ::testing::Contains(EBADMSG));
}

TEST_P(TlsRecords, ChangedBytesAreAnError) {
  for (const size_t at : {0, 2, 5, 20}) {
    Wire wire;
    wire.expect_hands_shaken(GetParam());
    say(wire.left, "one hundred dollars to the left");
    std::string bytes = wire.to_right();
    bytes[at] ^= 1;
    wire.give_right(bytes);
    int error = 0;
    EXPECT_EQ(hear(wire.right, &error), "") << at;
    // byte 2 has no meaning, or announces a longer record that does not come
    if (at == 2) continue;
    EXPECT_EQ(error, EBADMSG) << at;
  }
}

TEST_P(TlsRecords, RepeatedMissingOrInjectedRecordsAreAnError) {
  const std::string record = std::string("\x17\x03\x03\x00\x20", 5) + std::string(32, 'x');
  const auto meddle = [&](auto change) {
    Wire wire;
    wire.expect_hands_shaken(GetParam());
    say(wire.left, "first");
    const std::string first = wire.to_right();
    say(wire.left, "second");
    const std::string second = wire.to_right();
    for (const std::string& bytes : change(first, second)) wire.give_right(bytes);
    hear(wire.right);
    int error = 0;
    const std::string more = hear(wire.right, &error);
    EXPECT_EQ(error, EBADMSG);
    EXPECT_EQ(more, "");
  };
  using Bytes = std::vector<std::string>;
  meddle([](auto& first, auto&) { return Bytes{first, first}; });
  meddle([](auto&, auto& second) { return Bytes{second}; });
  meddle([&](auto& first, auto& second) { return Bytes{first, record, second}; });
  meddle([](auto& first, auto&) { return Bytes{first, "GET / HTTP/1.0\r\n\r\n"}; });
}

TEST(Tls, RecordedConnectionCannotBeReplayed) {
  Wire wire;
  EXPECT_EQ(wire.left.shake_hands(), EAGAIN);
  const std::string said = wire.to_right();
  // The acceptor answers the recorded hello with its own key share, and then accepts nothing.
  Wire again;
  again.give_right(said);
  EXPECT_EQ(again.right.shake_hands(), EAGAIN);
  EXPECT_NE(again.to_left(), "");
  wire.give_right(said);
  EXPECT_EQ(wire.right.shake_hands(), EAGAIN);
  wire.give_left(wire.to_left());
  EXPECT_EQ(wire.left.shake_hands(), 0);
  again.give_right(wire.to_right());
  EXPECT_EQ(again.right.shake_hands(), EBADMSG);
}

TEST_P(TlsRecords, ResumesWhenAFullSocketHasSpace) {
  Wire wire;
  wire.expect_hands_shaken(GetParam());
  std::string sent(4 << 20, '\0');
  for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<char>(i * 7 + i / 251);
  size_t at = 0;
  std::string received;
  while (at < sent.size()) {
    // Sends from different memory each time, like a message that was buffered in between.
    const std::string rest = sent.substr(at);
    const ssize_t taken = say(wire.left, rest.substr(0, 40),
                              std::string_view(rest).substr(std::min<size_t>(40, rest.size())));
    if (taken < 0) {
      ASSERT_EQ(errno, EAGAIN);
    } else {
      at += static_cast<size_t>(taken);
    }
    for (std::string bytes = wire.to_right(); !bytes.empty(); bytes.clear()) {
      for (size_t i = 0; i < bytes.size(); i += 50'000) {
        wire.give_right(bytes.substr(i, 50'000));
        received += hear(wire.right);
      }
    }
  }
  wire.give_right(wire.to_right());
  received += hear(wire.right);
  EXPECT_TRUE(received == sent);
}

TEST_P(TlsRecords, KeysAreRenewed) {
  std::array<Fd, 2> ends = socket_pair();
  Tls left(ends[0].get(), TlsSide::connects, kKey, 1000);
  Tls right(ends[1].get(), TlsSide::accepts, kKey);
  EXPECT_EQ(left.shake_hands(), EAGAIN);
  EXPECT_EQ(right.shake_hands(), EAGAIN);
  EXPECT_EQ(left.shake_hands(), 0);
  EXPECT_EQ(right.shake_hands(), 0);
  if (GetParam().left) left.use_large_records();
  if (GetParam().right) right.use_large_records();
  for (int i = 0; i < 20; ++i) {
    const std::string text(700, static_cast<char>('a' + i));
    EXPECT_EQ(left.send(std::as_bytes(std::span(text)), {}), 700);
    std::string heard(2000, '\0');
    ASSERT_EQ(right.receive(heard.data(), heard.size()), 700);
    EXPECT_EQ(heard.substr(0, 700), text);
  }
}

TEST_P(TlsRecords, CanBeReadInPiecesOfAnySize) {
  Wire wire;
  wire.expect_hands_shaken(GetParam());
  std::string sent(60'000, '\0');
  for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<char>(i * 5 + i / 253);
  EXPECT_EQ(say(wire.left, sent.substr(0, 40), std::string_view(sent).substr(40)), 60'000);
  const std::string bytes = wire.to_right();
  std::string received;
  for (size_t given = 0, size = 1; received.size() < sent.size(); size = size * 3 % 10'007) {
    wire.give_right(bytes.substr(std::min(given, bytes.size()), size));
    given += size;
    std::string piece(size, '\0');
    const ssize_t got = wire.right.receive(piece.data(), piece.size());
    if (got < 0) {
      ASSERT_EQ(errno, EAGAIN);
      continue;
    }
    received += piece.substr(0, static_cast<size_t>(got));
  }
  EXPECT_TRUE(received == sent);
}

// The reset directly follows a record and is read together with it. A socket reports a reset only
// once.
TEST_P(TlsRecords, ResetIsAnErrorAfterTheLastData) {
  Wire wire;
  wire.expect_hands_shaken(GetParam());
  say(wire.left, "last words");
  wire.give_right(wire.to_right());
  say(wire.right, "which nobody reads, so that closing resets");
  wire.right_wire.reset();
  EXPECT_EQ(hear(wire.right), "last words");
  int error = 0;
  EXPECT_EQ(hear(wire.right, &error), "");
  EXPECT_EQ(error, ECONNRESET);
}

TEST_P(TlsRecords, EndOfStreamIsReported) {
  Wire wire;
  wire.expect_hands_shaken(GetParam());
  say(wire.left, "the last words");
  wire.left.reset();
  wire.give_right(wire.to_right());
  wire.right_wire.reset();
  EXPECT_EQ(hear(wire.right), "the last words");
  char byte = 0;
  EXPECT_EQ(wire.right.receive(&byte, 1), 0);
  EXPECT_EQ(wire.right.receive(&byte, 1), 0);
  say(wire.right, "nobody");
  EXPECT_EQ(say(wire.right, "nobody"), -1);  // fails without SIGPIPE
}

}  // namespace
}  // namespace tutti
