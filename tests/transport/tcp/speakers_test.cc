#include "transport/tcp/speakers.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <vector>

#include "base/fd.h"

namespace tutti {
namespace {

struct Pair {
  Pair() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()), 0);
    here = Fd(ends[0]);
    there = Fd(ends[1]);
  }
  void say() const { EXPECT_EQ(::write(there.get(), "x", 1), 1); }
  void receive_all() {
    char byte = 0;
    while (::recv(here.get(), &byte, 1, 0) == 1) {
    }
    speaker.silent = true;
  }
  Fd here;
  Fd there;
  Speakers::Speaker speaker;
};

TEST(Speakers, AreThoseOnWhichSomethingHasComeOrThatHaveEnded) {
  Speakers speakers;
  std::vector<Pair> pairs(100);  // more than one question gets answers for
  for (Pair& pair : pairs) {
    speakers.watch(pair.here.get(), pair.speaker);
    ASSERT_TRUE(pair.speaker.watched);
    EXPECT_FALSE(speakers.is_silent(pair.speaker)) << "nobody has looked yet";
    pair.receive_all();
  }
  for (Pair& pair : pairs) EXPECT_TRUE(speakers.is_silent(pair.speaker));
  pairs[3].say();
  pairs[5].there.reset();
  for (size_t round = 0; round < 2; ++round) {
    for (Pair& pair : pairs) speakers.is_silent(pair.speaker);
  }
  for (size_t i = 0; i < pairs.size(); ++i) {
    EXPECT_EQ(pairs[i].speaker.silent, i != 3 && i != 5) << i;
  }
  pairs[3].receive_all();
  for (int look = 0; look < 3; ++look) EXPECT_TRUE(speakers.is_silent(pairs[3].speaker));
  speakers.forget(pairs[5].here.get(), pairs[5].speaker);
  EXPECT_FALSE(speakers.is_silent(pairs[5].speaker)) << "whoever receives finds the end again";
}

TEST(Speakers, AllHaveTheirTurnHoweverManySpeakAtATime) {
  Speakers speakers;
  std::vector<Pair> pairs(200);
  for (Pair& pair : pairs) {
    speakers.watch(pair.here.get(), pair.speaker);
    pair.receive_all();
    pair.say();
  }
  // The others' bytes are never received.
  Pair& last = pairs.back();
  int looks = 0;
  while (speakers.is_silent(last.speaker) && looks < 100) ++looks;
  EXPECT_LT(looks, 100);
}

}  // namespace
}  // namespace tutti
