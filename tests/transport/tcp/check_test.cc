// Tests bytes that change in transit without a change of TCP's checksum. They must cause an error
// and never be delivered.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "tests/transport/tcp/network.h"

namespace tutti {
namespace {

using testing::bytes_on_the_wire;
using testing::Damage;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::kFewSizes;
using testing::kFrameBytes;
using testing::Network;
using testing::swap_words;
using testing::Talk;

// Returns the index of the message that contains this byte of the stream.
size_t message_at(size_t byte, const std::vector<size_t>& sizes) {
  size_t message = 0;
  for (size_t end = kFrameBytes + sizes[0]; byte >= end;) end += kFrameBytes + sizes[++message];
  return message;
}

// Expects all messages before the damaged one to arrive, and no other message.
void expect_found(Network& network, size_t message, const std::vector<size_t>& sizes) {
  Talk talk(network, sizes);
  talk.hold();
  EXPECT_EQ(talk.came(), message);
  EXPECT_EQ(talk.wrong(), 0U);
  EXPECT_EQ(network.corrupted().size(), 1U);
  EXPECT_TRUE(network.lost().empty());
}

// Exchanges words in the magic number, version, header, hashes and payload, and across the borders
// between them.
TEST(CheckedConnection, FindsExchangedWordsAnywhere) {
  for (const size_t distance : {2, 6, 56}) {
    size_t found = 0;
    const size_t last = bytes_on_the_wire(kFewSizes) - distance - 2;
    for (size_t at = 0; at <= last; ++at) {
      SCOPED_TRACE(::testing::Message() << at << ' ' << distance);
      Damage damage = swap_words(at, distance);
      bool changed = false;
      const auto swap = damage.change;
      damage.change = [&](std::vector<std::byte>& bytes) {
        const std::vector<std::byte> before = bytes;
        swap(bytes);
        changed = bytes != before;
      };
      Network network({.sent = damage});
      Talk talk(network, kFewSizes);
      talk.hold();
      ASSERT_EQ(talk.wrong(), 0U);
      ASSERT_EQ(network.corrupted().size(), changed ? 1U : 0U);
      if (!changed) {
        ASSERT_EQ(talk.came(), kFewSizes.size());
        continue;
      }
      ++found;
      // If the words differ in only one byte, the damage may begin one byte later.
      const size_t message = message_at(at, kFewSizes);
      ASSERT_TRUE(talk.came() == message || talk.came() == message_at(at + 1, kFewSizes));
    }
    EXPECT_GT(found, last / 2);
  }
}

TEST(CheckedConnection, FindsExchangedWordsInLargeMessages) {
  std::mt19937 random(3);
  const std::vector<size_t> sizes = {512 << 10, 512 << 10, 300 << 10};
  for (size_t message = 0; message < sizes.size(); ++message) {
    const size_t begin = message * (kFrameBytes + (512 << 10)) + kFrameBytes;
    Network network({.sent = swap_words(begin + 2 * (random() % 100'000), 2)});
    expect_found(network, message, sizes);
  }
}

// Shows that without checks, the damage of the tests above is not detected.
TEST(CheckedConnection, DeliversExchangedWordsWithoutChecks) {
  Network network({.checked = false, .sent = swap_words(kFrameBytes + kFrameBytes + 4, 2)});
  Talk talk(network, kFewSizes);
  talk.hold();
  EXPECT_EQ(talk.came(), kFewSizes.size());
  EXPECT_EQ(talk.wrong(), 1U);
  EXPECT_TRUE(network.corrupted().empty());
}

TEST(CheckedConnection, FindsAMessageThatIsMissingOrComesTwice) {
  const std::vector<size_t> sizes = {10, 20, 20, 20};
  const size_t second = kFrameBytes + 10;
  const auto missing = [](std::vector<std::byte>& bytes) { bytes.clear(); };
  const auto twice = [](std::vector<std::byte>& bytes) {
    const std::vector<std::byte> once = bytes;
    bytes.insert(bytes.end(), once.begin(), once.end());
  };
  Network without({.sent = Damage{second, kFrameBytes + 20, missing}});
  expect_found(without, 1, sizes);
  Network with_two({.sent = Damage{second, kFrameBytes + 20, twice}});
  expect_found(with_two, 2, sizes);
}

// The reader's system has acknowledged the damaged bytes, so that they are not sent again.
TEST(CheckedConnection, FindsExchangedWordsAfterAResumeWithinTheMessage) {
  const std::vector<size_t> sizes = {30, 200, 40};
  const size_t second = kFrameBytes + 30;
  for (size_t at = second + kFrameBytes + 10; at < second + kFrameBytes + 200; at += 7) {
    SCOPED_TRACE(at);
    Network network({.breaks = {at}, .sent = swap_words(second + kFrameBytes + 4, 2)});
    expect_found(network, 1, sizes);
    EXPECT_EQ(network.connections(), 2U);
  }
}

TEST(CheckedConnection, FindsExchangedWordsInTheReadersPosition) {
  Network network({.breaks = {100}, .answer = swap_words(0, 4)});
  Talk talk(network, {50, 50, 50});
  talk.hold();
  EXPECT_EQ(talk.wrong(), 0U);
  EXPECT_THAT(network.corrupted(), ElementsAre(HasSubstr("from which to resume")));
}

TEST(CheckedConnection, ReportsTheDamagedPart) {
  Network payload({.sent = swap_words(kFrameBytes + kFrameBytes + 4, 2)});
  expect_found(payload, 1, kFewSizes);
  EXPECT_THAT(payload.corrupted(),
              ElementsAre(HasSubstr("the 24 bytes of message 2 (slice 0 of call 2)")));
  Network header({.sent = swap_words(8, 2)});
  expect_found(header, 0, kFewSizes);
  EXPECT_THAT(header.corrupted(), ElementsAre(HasSubstr("the header of message 1")));
}

}  // namespace
}  // namespace tutti
