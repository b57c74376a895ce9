// Tests watching a job from outside: authorization, the information that is returned, and what a
// watcher cannot do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/text.h"
#include "tests/support/ranks.h"
#include "tests/transport/bootstrap/recording_client.h"
#include "transport/bootstrap/control/control.h"
#include "transport/bootstrap/control/watchers.h"
#include "transport/bootstrap/handshake/handshake.h"
#include "transport/bootstrap/membership/watch.h"

namespace tutti::bootstrap {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using tutti::testing::Barrier;
using tutti::testing::everybody;
using tutti::testing::kPatience;
using tutti::testing::run_ranks;

constexpr uint64_t kWorld = 1;
constexpr int kRanks = 7;

// A client that reports an activity, which depends on its rank.
class BusyClient final : public ControlClient {
 public:
  explicit BusyClient(int rank) : rank_(rank) {}
  void on_abort(const Error&) override {}
  std::string on_question(int, uint32_t) override { return {}; }
  void on_answer(int, uint32_t, std::string_view) override {}
  void on_connection(int, int, int, ByteStream) override {}
  void on_opened(int, int, ByteStream) override {}
  Activity activity() override {
    const auto number = static_cast<uint64_t>(rank_);
    return {.calls = 100 + number,
            .bytes = 1000 + number,
            .waited_ns = 10 * rank_,
            .current = cat("call ", rank_),
            .current_ns = 5,
            .waits_for = {rank_ + 1, 3},
            .received = {{rank_, 7}, {rank_ + 1, 9}}};
  }

 private:
  const int rank_;
};

// Each rank has a busy communicator. Rank 0 then watches the job as an outside process would.
void watch(const std::function<void(Job& job, Control& control)>& look) {
  Barrier attached(kRanks);
  Barrier done(kRanks);
  run_ranks(kRanks, [&](Job job) {
    job.fanout = 2;
    const std::shared_ptr<Control> control = Control::connect(job);
    BusyClient client(control->rank());
    control->attach(kWorld, everybody(kRanks), &client);
    attached.wait();
    if (control->rank() == 0) look(job, *control);
    done.wait();
    control->detach(kWorld);
  });
}

SocketAddress address_of(const Control& control, int rank) {
  return resolve(control.peer(rank).address, control.peer(rank).port).front();
}

JobWatch watch_from(const Control& control, int rank, const std::string& token) {
  return JobWatch(address_of(control, rank), token, Deadline::after(kPatience));
}

TEST(Watching, AnyRankReportsAll) {
  watch([](Job& job, Control& control) {
    for (const int asked : {0, 2, kRanks - 1}) {
      JobWatch job_watch = watch_from(control, asked, job.token);
      for (int look = 0; look < 3; ++look) {
        const std::vector<RankStatus> sights = job_watch.look();
        ASSERT_THAT(sights, SizeIs(kRanks));
        for (int rank = 0; rank < kRanks; ++rank) {
          const RankStatus& status = sights[static_cast<size_t>(rank)];
          const auto number = static_cast<uint64_t>(rank);
          EXPECT_EQ(status.rank, rank);
          EXPECT_EQ(status.size, kRanks);
          EXPECT_EQ(status.state, RankState::answers);
          EXPECT_EQ(status.pid, control.peer(rank).pid);
          EXPECT_EQ(status.port, control.peer(rank).port);
          EXPECT_EQ(status.activity.calls, 100 + number);
          EXPECT_EQ(status.activity.bytes, 1000 + number);
          EXPECT_EQ(status.activity.waited_ns, 10 * rank);
          EXPECT_EQ(status.activity.current, cat("call ", rank));
          EXPECT_EQ(status.activity.current_ns, 5);
          EXPECT_THAT(status.activity.waits_for, ElementsAre(rank + 1, 3));
          EXPECT_EQ(status.activity.received.at(rank + 1), 9U);
        }
      }
    }
  });
}

TEST(Watching, RequiresTheToken) {
  watch([](Job& job, Control& control) {
    try {
      watch_from(control, 0, job.token + "?");
      ADD_FAILURE() << "a stranger watches";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::bootstrap);
      EXPECT_THAT(error.what(), HasSubstr("different tokens"));
    }
    EXPECT_THAT(watch_from(control, 0, job.token).look(), SizeIs(kRanks));
  });
}

// Without this, a client that knows the token but does not use TLS would be answered in plain text.
TEST(Watching, TokensRequireEncryption) {
  watch([](Job& job, Control& control) {
    Fd socket;
    ASSERT_EQ(try_connect(address_of(control, 2), Deadline::after(kPatience), socket), 0);
    EXPECT_THROW(shake_hands(std::move(socket), {.purpose = Purpose::watch}, job.token, "rank 2",
                             Deadline::after(kPatience)),
                 ForeignListener);
  });
}

TEST(Watching, ServesAFewWatchersAtOnce) {
  watch([](Job& job, Control& control) {
    std::vector<JobWatch> watches;
    for (size_t i = 0; i < Watchers::kMost; ++i) {
      watches.push_back(watch_from(control, 0, job.token));
      EXPECT_THAT(watches.back().look(), SizeIs(kRanks));
    }
    EXPECT_THROW(watch_from(control, 0, job.token), Error);
    watches.pop_back();
    const Deadline deadline = Deadline::after(kPatience);
    while (!deadline.passed()) {
      try {
        EXPECT_THAT(watch_from(control, 0, job.token).look(), SizeIs(kRanks));
        break;
      } catch (const Error&) {  // the rank has not yet noticed that a watcher has left
      }
    }
    EXPECT_FALSE(deadline.passed());
  });
}

// A watcher cannot send messages of the tree: it can neither abort nor report deaths.
TEST(Watching, WatchersCanDoNothingElse) {
  watch([](Job& job, Control& control) {
    for (const std::string& frame :
         {FrameWriter(FrameType::goodbye).put(int32_t{3}).finish(),
          FrameWriter(FrameType::look).finish() + FrameWriter(FrameType::look).finish()}) {
      Fd socket;
      ASSERT_EQ(try_connect(address_of(control, 0), Deadline::after(kPatience), socket), 0);
      ByteStream stream =
          shake_hands(std::move(socket), {.purpose = Purpose::watch, .encrypted = 1}, job.token,
                      "rank 0", Deadline::after(kPatience));
      ASSERT_TRUE(stream);
      ASSERT_EQ(write_exactly(stream, std::as_bytes(std::span(frame)), Deadline::after(kPatience)),
                Transfer::complete);
      std::string body;
      while (read_frame(stream, body, kMaxFrameBytes, Deadline::after(kPatience)) ==
             Transfer::complete) {
      }
    }
    EXPECT_FALSE(control.has_left(3));
    EXPECT_THAT(watch_from(control, 0, job.token).look(), SizeIs(kRanks));
  });
}

TEST(Watching, ReportsWhichRanksHaveLeft) {
  Barrier joined(3);
  run_ranks(3, [&](const Job& job) {
    const std::shared_ptr<Control> control = Control::connect(job);
    joined.wait();
    if (control->rank() != 0) return;
    JobWatch job_watch = watch_from(*control, 0, job.token);
    const Deadline deadline = Deadline::after(kPatience);
    while (!(control->has_left(1) && control->has_left(2)) && !deadline.passed()) {
    }
    const std::vector<RankStatus> sights = job_watch.look();
    ASSERT_THAT(sights, SizeIs(3));
    EXPECT_EQ(sights[0].state, RankState::answers);
    EXPECT_EQ(sights[1].state, RankState::left);
    EXPECT_EQ(sights[2].state, RankState::left);
  });
}

TEST(Activity, SeveralCommunicatorsAddUp) {
  Activity all{.calls = 1, .bytes = 2, .waited_ns = 3, .current = "short", .current_ns = 1};
  all.received = {{0, 5}};
  all.add({.calls = 10,
           .bytes = 20,
           .waited_ns = 30,
           .current = "long",
           .current_ns = 100,
           .waits_for = {4},
           .received = {{0, 1}, {2, 3}}});
  all.add({.calls = 100, .bytes = 0, .waited_ns = 0, .current = "short, too", .current_ns = 2});
  EXPECT_EQ(all.calls, 111U);
  EXPECT_EQ(all.bytes, 22U);
  EXPECT_EQ(all.waited_ns, 33);
  EXPECT_EQ(all.current, "long");
  EXPECT_THAT(all.waits_for, ElementsAre(4));
  EXPECT_EQ(all.received, (std::map<int, uint64_t>{{0, 6}, {2, 3}}));
}

TEST(Sight, HasRoomForTheBusiest) {
  RankStatus status{.rank = 1, .size = 100'000};
  for (int sender = 0; sender < 100'000; ++sender) {
    status.activity.received[sender] = static_cast<uint64_t>(sender);
    status.activity.waits_for.push_back(sender);
  }
  const std::string frame = status_frame(status);
  EXPECT_LT(frame.size(), kMaxFrameBytes);
  FrameReader reader(std::string_view(frame).substr(sizeof(uint32_t)));
  const RankStatus told = get_status(reader);
  EXPECT_TRUE(reader.ok());
  EXPECT_EQ(told.activity.received.size(), 1024U);
  EXPECT_TRUE(told.activity.received.contains(99'999));
  FrameReader cut(std::string_view(frame).substr(sizeof(uint32_t), 200));
  get_status(cut);
  EXPECT_FALSE(cut.ok());
}

}  // namespace
}  // namespace tutti::bootstrap
