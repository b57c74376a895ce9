// Tests the stall watch without a communicator. Four watches answer each other's questions.
#include "collectives/runtime/waiting/stall_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <vector>

#include "base/ticks.h"

namespace tutti::internal {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Ranks 0 to 3 of a communicator are ranks 10 to 13 of the job. A rank that answers a question
// answers immediately.
class StallWatchTest : public ::testing::Test {
 protected:
  StallWatchTest() {
    for (int rank = 0; rank < 4; ++rank) {
      FlightRecorder& recorder = recorders_.emplace_back();
      watches_.emplace_back(
          rank, members_, recorder,
          StallWatch::Channel{.ask =
                                  [this](int peer, uint32_t call) {
                                    asked_.push_back({peer, call});
                                  },
                              .way_to = [this](int peer) { return ways_[peer]; },
                              .describe = [](int rank) { return "R" + std::to_string(rank); }});
    }
  }

  static Signature sum_of(uint64_t count) {
    return {.collective = Collective::all_reduce, .dtype = DType::f32, .count = count};
  }
  void call(int rank, uint32_t number, uint64_t count = 4) {
    recorders_[rank].started(number, encode(sum_of(count)), ticks());
  }
  // Returns the ranks that `asker` has asked since the last call. Each of them answers.
  std::vector<int> answered(int asker) {
    std::vector<int> peers;
    for (const auto& [peer, call] : std::exchange(asked_, {})) {
      peers.push_back(peer);
      if (peer != silent_) watches_[asker].note_answer(peer, call, watches_[peer].answer(call));
    }
    return peers;
  }

  const std::vector<int> members_{10, 11, 12, 13};
  // Indexed by rank: the job rank through which the rank is reached.
  std::vector<int> ways_{10, 11, 12, 13};
  int silent_ = -1;
  std::deque<FlightRecorder> recorders_;
  std::deque<StallWatch> watches_;
  struct Question {
    int peer;
    uint32_t call;
  };
  std::vector<Question> asked_;
};

TEST_F(StallWatchTest, FollowsTheChainToItsEnd) {
  for (const int rank : {0, 1, 2}) call(rank, 7);
  watches_[1].ask({2}, 7, true);
  watches_[2].ask({3}, 7, true);
  asked_.clear();
  watches_[0].ask({1}, 7, true);
  EXPECT_THAT(answered(0), ElementsAre(1));
  watches_[0].ask({1}, 7, false);
  EXPECT_THAT(answered(0), ElementsAre(2)) << "those that were asked before are not asked again";
  watches_[0].ask({1}, 7, false);
  EXPECT_THAT(answered(0), ElementsAre(3));
  const StallWatch::Explanation found = watches_[0].explain({1}, false);
  EXPECT_EQ(found.culprit, 13);
  EXPECT_EQ(found.text,
            "; waiting for R11, which is at call 7, all_reduce of 4 f32, sum, and waits for rank 2"
            "; waiting for R12, which is at call 7, all_reduce of 4 f32, sum, and waits for rank 3"
            "; waiting for R13, which has made no call yet");
  EXPECT_THAT(watches_[0].waits_for(), ElementsAre(1));
}

// Each of two ranks waits for a message of the other. Rank 1 has not taken a message that has
// arrived.
TEST_F(StallWatchTest, NamesTheRankThatCouldProceed) {
  for (const int rank : {0, 1}) {
    call(rank, 7);
    watches_[rank].ask({1 - rank}, 7, true);
  }
  watches_[0].note_exchanges(7, {{.peer = 1, .sent = 3, .received = 2, .to_receive = true}});
  watches_[1].note_exchanges(7, {{.peer = 0, .sent = 2, .received = 2, .to_receive = true}});
  asked_.clear();
  for (const int rank : {0, 1}) {
    watches_[rank].ask({1 - rank}, 7, true);
    answered(rank);
    const StallWatch::Explanation found = watches_[rank].explain({1 - rank}, false);
    EXPECT_EQ(found.culprit, 11);
    EXPECT_THAT(found.text,
                ::testing::EndsWith("; R11 has not taken the message that R10 has sent it: it has "
                                    "stalled, or the connection between the two"));
  }
}

// Ranks wait in a ring (0 for 2, 2 for 1, 1 for 0), so that the chain has no end.
TEST_F(StallWatchTest, NamesTheRankOfACycleThatCouldProceed) {
  const auto culprits = [this](const std::vector<std::vector<Exchange>>& exchanges) {
    for (const int rank : {0, 1, 2}) {
      call(rank, 7);
      watches_[rank].ask({(rank + 2) % 3}, 7, true);
      watches_[rank].note_exchanges(7, exchanges[static_cast<size_t>(rank)]);
    }
    std::vector<int> found;
    for (const int rank : {0, 1, 2}) {
      asked_.clear();
      for (int round = 0; round < 3; ++round) {
        watches_[rank].ask({(rank + 2) % 3}, 7, round == 0);
        answered(rank);
      }
      found.push_back(watches_[rank].explain({(rank + 2) % 3}, false).culprit);
    }
    return found;
  };
  // Each rank has sent a message to the next one. Only rank 1 has not taken its message.
  EXPECT_THAT(culprits({{{.peer = 1, .sent = 2}, {.peer = 2, .received = 1, .to_receive = true}},
                        {{.peer = 2, .sent = 1}, {.peer = 0, .received = 1, .to_receive = true}},
                        {{.peer = 0, .sent = 1}, {.peer = 1, .received = 1, .to_receive = true}}}),
              ElementsAre(11, 11, 11));
  // Rank 2 waits for room, although rank 0 has taken all messages of rank 2.
  EXPECT_THAT(culprits({{{.peer = 1, .sent = 1}, {.peer = 2, .received = 1, .to_receive = true}},
                        {{.peer = 2, .sent = 1}, {.peer = 0, .received = 1, .to_receive = true}},
                        {{.peer = 0, .sent = 1, .to_send = true}, {.peer = 1, .received = 1}}}),
              ElementsAre(12, 12, 12));
  // It is unknown which rank could proceed, because the message of rank 0 may still be in flight.
  EXPECT_THAT(culprits({{{.peer = 1, .sent = 2, .has_unsent = true},
                         {.peer = 2, .received = 1, .to_receive = true}},
                        {{.peer = 2, .sent = 1}, {.peer = 0, .received = 1, .to_receive = true}},
                        {{.peer = 0, .sent = 1}, {.peer = 1, .received = 1, .to_receive = true}}}),
              ElementsAre(11, 12, 10));
}

TEST_F(StallWatchTest, NamesARankInACallThatItsPeerHasFinished) {
  call(0, 7);
  call(1, 7);
  call(1, 8);
  recorders_[1].finished(7, ticks());
  watches_[0].note_exchanges(7, {{.peer = 1, .received = 1, .to_receive = true}});
  watches_[0].ask({1}, 7, true);
  answered(0);
  const StallWatch::Explanation found = watches_[0].explain({1}, false);
  EXPECT_EQ(found.culprit, 10) << "this rank itself";
  EXPECT_THAT(found.text, ::testing::HasSubstr("R10 is still in call 7, which R11 has finished"));
}

// Rank 0 has lent a message to rank 1, which has read it and finished, and to rank 2, which makes
// no call.
TEST_F(StallWatchTest, ARankThatWaitsForTheSecondReaderIsNotToBlame) {
  call(0, 7);
  call(1, 7);
  recorders_[1].finished(7, ticks());
  const Exchange done{.peer = 1, .sent = 1, .to_send = true};
  const Exchange late{.peer = 2, .sent = 1, .to_send = true};
  watches_[0].note_exchanges(7, std::vector<Exchange>{done, late});
  watches_[0].ask({1, 2}, 7, true);
  answered(0);
  EXPECT_EQ(watches_[0].explain({2}, false).culprit, 12);
  watches_[0].note_exchanges(7, {done});
  EXPECT_EQ(watches_[0].explain({1}, false).culprit, 10) << "this rank itself";
}

TEST_F(StallWatchTest, ARankBehindASilentOneIsNotToBlame) {
  ways_[3] = 12;
  silent_ = 2;
  call(0, 1);
  watches_[0].ask({3}, 1, true);
  EXPECT_THAT(answered(0), ElementsAre(3, 2)) << "and the rank on the way to it";
  watches_[0].forget_answers();
  const StallWatch::Explanation found = watches_[0].explain({3}, false);
  EXPECT_EQ(found.culprit, 12);
  EXPECT_EQ(found.text, "; waiting for R13, which is reached through R12, which does not answer");
}

TEST_F(StallWatchTest, FindsACallWithOtherArguments) {
  call(0, 3);
  call(1, 3, 5);
  watches_[0].ask({1}, 3, true);
  answered(0);
  EXPECT_FALSE(watches_[0].mismatch(2, sum_of(4))) << "of another call nothing is known";
  const auto mismatch = watches_[0].mismatch(3, sum_of(4));
  ASSERT_TRUE(mismatch);
  EXPECT_EQ(mismatch->peer, 1);
  EXPECT_EQ(mismatch->signature.count, 5U);
  call(1, 4, 4);
  watches_[0].ask({1}, 4, true);
  answered(0);
  EXPECT_FALSE(watches_[0].mismatch(4, sum_of(4)));
}

TEST_F(StallWatchTest, AnEmptyAnswerMeansADestroyedCommunicator) {
  watches_[0].ask({1, 2}, 1, true);
  watches_[0].note_answer(1, 1, "");
  watches_[0].note_answer(2, 1, "nonsense");
  watches_[0].note_answer(3, 2, "");  // answers a question about another call
  EXPECT_THAT(watches_[0].destroyed(), ElementsAre(1));
}

TEST_F(StallWatchTest, AnswersAboutOneStallDoNotCountForTheNext) {
  call(1, 1);
  watches_[0].ask({1}, 1, true);
  answered(0);
  watches_[0].stop_waiting();
  EXPECT_THAT(watches_[0].waits_for(), IsEmpty());
  EXPECT_EQ(watches_[0].explain({1}, false).text,
            "; waiting for R11, which is at call 1, all_reduce of 4 f32, sum");
  watches_[0].ask({1}, 2, false);
  EXPECT_EQ(watches_[0].explain({1}, false).text, "; waiting for R11, which does not answer");
}

TEST_F(StallWatchTest, MessagesHaveNoNumbers) {
  call(1, 9);
  watches_[1].ask({2}, 9, true);
  asked_.clear();
  watches_[0].ask({1}, 0, true);
  answered(0);
  EXPECT_EQ(watches_[0].explain({1}, true).text,
            "; waiting for R11, which waits for rank 2; waiting for R12, which does not answer");
  EXPECT_EQ(watches_[0].explain({0}, true).culprit, -1) << "this rank itself";
}

TEST_F(StallWatchTest, ReportsALateRankAfterThreeCallsInARow) {
  EXPECT_FALSE(watches_[0].note_late(1, 11));
  EXPECT_TRUE(watches_[0].knows_late(1));
  EXPECT_FALSE(watches_[0].note_late(2, 11));
  EXPECT_EQ(watches_[0].note_late(3, 11), 3U);
  EXPECT_FALSE(watches_[0].note_late(4, 11)) << "again after ten times as many";
  EXPECT_FALSE(watches_[0].note_late(5, 12)) << "another one";
}

}  // namespace
}  // namespace tutti::internal
