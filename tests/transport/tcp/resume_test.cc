// Tests connections that break and resume, over a simulated network.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <random>
#include <string>
#include <vector>

#include "tests/transport/tcp/network.h"

namespace tutti {
namespace {

using testing::bytes_on_the_wire;
using testing::kFewSizes;
using testing::kLane;
using testing::kReader;
using testing::kSender;
using testing::Network;
using testing::Pair;
using testing::Talk;

class Resume : public ::testing::TestWithParam<bool> {};  // parameter: true with integrity checks

INSTANTIATE_TEST_SUITE_P(All, Resume, ::testing::Bool(), [](const auto& info) {
  return std::string(info.param ? "checked" : "unchecked");
});

TEST_P(Resume, ResumesAfterABreakAtAnyByte) {
  const size_t bytes = bytes_on_the_wire(kFewSizes);
  for (size_t at = 1; at < bytes; ++at) {
    SCOPED_TRACE(at);
    Network network({.breaks = {at}, .checked = GetParam()});
    Talk talk(network, kFewSizes);
    talk.hold();
    ASSERT_EQ(talk.came(), kFewSizes.size());
    ASSERT_EQ(talk.wrong(), 0U);
    ASSERT_EQ(network.connections(), 2U);
    ASSERT_TRUE(network.lost().empty()) << network.lost().front();
  }
}

TEST_P(Resume, ResumesAfterABreakAtAnyEncryptedByte) {
  for (size_t at = 1; at < bytes_on_the_wire(kFewSizes); at += 3) {
    SCOPED_TRACE(at);
    Network network({.breaks = {at}, .encrypted = true, .checked = GetParam()});
    Talk talk(network, kFewSizes);
    talk.hold();
    ASSERT_EQ(talk.came(), kFewSizes.size());
    ASSERT_EQ(talk.wrong(), 0U);
    ASSERT_EQ(network.connections(), 2U);
    ASSERT_TRUE(network.lost().empty()) << network.lost().front();
  }
}

// Connections break at random bytes, possibly before the reader's message about its position has
// arrived.
TEST_P(Resume, ResumesRepeatedly) {
  std::mt19937 random(7);
  for (const bool encrypted : {false, true}) {
    for (int round = 0; round < 5; ++round) {
      SCOPED_TRACE(::testing::Message() << encrypted << ' ' << round);
      std::vector<size_t> sizes(40);
      for (size_t& size : sizes) size = random() % 5 == 0 ? random() % (512 << 10) : random() % 500;
      std::vector<size_t> breaks(5);
      for (size_t& at : breaks) at = 1 + random() % (200 << 10);
      Network network({.breaks = breaks, .encrypted = encrypted, .checked = GetParam()});
      Talk talk(network, sizes);
      talk.hold();
      ASSERT_EQ(talk.wrong(), 0U);
      ASSERT_EQ(talk.came(), sizes.size());
      ASSERT_TRUE(network.lost().empty()) << network.lost().front();
    }
  }
}

TEST(ResumedConnection, TreatsNothingAsConfirmedBeforeTheReadersMessage) {
  Network network({.breaks = {60}});
  network.withhold();
  Talk talk(network, {50, 50, 50});
  EXPECT_TRUE(talk.send_next());
  EXPECT_TRUE(talk.send_next());
  EXPECT_TRUE(network.cable().carry());
  EXPECT_TRUE(talk.send_next()) << "it is kept";
  ASSERT_EQ(network.connections(), 2U);
  network.sender().progress();
  network.sender().settled();  // the sender checks its connections
  network.deliver();
  talk.hold();
  EXPECT_EQ(talk.came(), 3U);
  EXPECT_EQ(talk.wrong(), 0U);
  EXPECT_TRUE(network.lost().empty());
}

TEST(ResumedConnection, LostConfirmedBytesEndIt) {
  Network network({.breaks = {100}});
  network.swallow(1 << 20);
  Talk talk(network, std::vector<size_t>(10, 200 << 10));
  talk.hold();
  ASSERT_EQ(network.lost().size(), 1U);
  EXPECT_NE(network.lost().front().find("bytes were lost"), std::string::npos);
}

TEST(ResumedConnection, DepartedPeersEndIt) {
  Network network({.breaks = {100}});
  network.say_gone();
  Talk talk(network, {50, 50, 50, 50});
  talk.hold();
  network.turn();
  ASSERT_EQ(network.connections(), 1U);
  EXPECT_EQ(network.lost().size(), 2U) << "each end tells once";
}

TEST(ResumedConnection, RefusesAConnectionOlderThanItsOwn) {
  Network network({.breaks = {90, 40}});
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
