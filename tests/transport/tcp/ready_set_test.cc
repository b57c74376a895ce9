#include "transport/tcp/ready_set.h"

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
    ready.idle = true;
  }
  Fd here;
  Fd there;
  ReadySet::Entry ready;
};

TEST(ReadySet, ContainsConnectionsWithInputOrAnEnd) {
  ReadySet ready_set;
  std::vector<Pair> pairs(100);  // more than one call of the system can report
  for (Pair& pair : pairs) {
    ready_set.watch(pair.here.get(), pair.ready);
    ASSERT_TRUE(pair.ready.watched);
    EXPECT_FALSE(ready_set.is_idle(pair.ready)) << "nobody has looked yet";
    pair.receive_all();
  }
  for (Pair& pair : pairs) EXPECT_TRUE(ready_set.is_idle(pair.ready));
  pairs[3].say();
  pairs[5].there.reset();
  for (size_t round = 0; round < 2; ++round) {
    for (Pair& pair : pairs) ready_set.is_idle(pair.ready);
  }
  for (size_t i = 0; i < pairs.size(); ++i) {
    EXPECT_EQ(pairs[i].ready.idle, i != 3 && i != 5) << i;
  }
  pairs[3].receive_all();
  for (int look = 0; look < 3; ++look) EXPECT_TRUE(ready_set.is_idle(pairs[3].ready));
  ready_set.forget(pairs[5].here.get(), pairs[5].ready);
  EXPECT_FALSE(ready_set.is_idle(pairs[5].ready)) << "whoever receives finds the end again";
}

TEST(ReadySet, EveryConnectionHasItsTurn) {
  ReadySet ready_set;
  std::vector<Pair> pairs(200);
  for (Pair& pair : pairs) {
    ready_set.watch(pair.here.get(), pair.ready);
    pair.receive_all();
    pair.say();
  }
  // The bytes of the other connections are never received.
  Pair& last = pairs.back();
  int looks = 0;
  while (ready_set.is_idle(last.ready) && looks < 100) ++looks;
  EXPECT_LT(looks, 100);
}

}  // namespace
}  // namespace tutti
