// Tests ranks that others consider dead although they are alive. The test acts as the last rank of
// each job, and implements the protocol of control links itself.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/settings.h"
#include "tests/support/ranks.h"
#include "tests/transport/bootstrap/recording_client.h"
#include "transport/bootstrap/control/bootstrap.h"
#include "transport/bootstrap/control/control_frames.h"
#include "transport/bootstrap/handshake/handshake.h"
#include "transport/bootstrap/handshake/socket.h"
#include "transport/bootstrap/membership/agreement.h"

namespace tutti::testing {
namespace {

using bootstrap::FrameReader;
using bootstrap::FrameType;
using bootstrap::Link;
using bootstrap::Membership;
using ::testing::HasSubstr;

constexpr uint64_t kWorld = 1;
constexpr int kRanks = 4;
constexpr int kPlayed = kRanks - 1;

// Opens a link to `rank`, which replaces an earlier link. Throws if `rank` refuses it.
Link move_to(const Membership& membership, int rank) {
  const Deadline deadline = Deadline::after(kPatience);
  const PeerInfo& peer = membership.peers->at(static_cast<size_t>(rank));
  Fd socket;
  if (const int error = bootstrap::try_connect(bootstrap::resolve(peer.address, peer.port).front(),
                                               deadline, socket)) {
    throw system_error("connect", error);
  }
  const bootstrap::Hello hello{.purpose = bootstrap::Purpose::relink,
                               .encrypted = membership.encrypted,
                               .rank = kPlayed,
                               .size = kRanks,
                               .number = 1,
                               .to = rank};
  ByteStream stream = bootstrap::shake_hands(std::move(socket), hello, membership.key,
                                             cat("rank ", rank), deadline);
  if (!stream) throw Error(ErrorCode::connection_lost, "closed without a verdict");
  return Link(std::move(stream));
}

void tell_death(Link& link, int rank) {
  link.send(bootstrap::death_frame({.rank = rank, .text = cat("rank ", rank, " is silent")}));
}

// The last rank's part in agreements, over its link to rank 0. It handles no other messages.
class PlayedAgreements final : public bootstrap::AgreementChannel {
 public:
  explicit PlayedAgreements(Link& link) : link_(link) {}

  // Blocks until the agreement is decided.
  Agreed agree(uint32_t number, Contribution contribution) {
    std::optional<Agreed> agreed;
    agreements_.start({kWorld, number}, std::move(contribution), kPatience,
                      [&](const Agreed* decision, const Error* error) {
                        if (decision == nullptr) throw Error(*error);
                        agreed = *decision;
                      });
    const auto take = [&](std::string_view body) {
      FrameReader frame(body);
      if (frame.type() != FrameType::agreement) return true;
      frame.get<int32_t>();  // destination
      return agreements_.on_frame(frame);
    };
    while (!agreed) {
      bootstrap::wait_for(link_.fd(), POLLIN, Deadline::after(next_ - Clock::now()));
      if (!link_.receive(take, bootstrap::kMaxFrameBytes)) {
        throw Error(ErrorCode::connection_lost, "rank 0 has closed the link");
      }
      if (Clock::now() >= next_) std::exchange(timer_, nullptr)();
    }
    return *agreed;
  }

  int own_rank() const override { return kPlayed; }
  bool is_rank(int number) const override { return number >= 0 && number < kRanks; }
  std::string name_of(int rank) const override { return cat("rank ", rank); }
  void send_to(int, const std::string& frame) override { link_.send(frame); }
  bool has_gone(int) const override { return false; }
  bool has_ended(int) const override { return false; }
  bool reaches(int) const override { return true; }
  std::string_view host_of(int) const override { return "the only one"; }
  bool may_learn_of_ends() const override { return false; }
  Clock::time_point now() const override { return Clock::now(); }
  void call_after(std::chrono::milliseconds delay, std::function<void()> what) override {
    next_ = Clock::now() + delay;
    timer_ = std::move(what);
  }

 private:
  Link& link_;
  Clock::time_point next_;
  std::function<void()> timer_;
  bootstrap::Agreements agreements_{*this};
};

// `play` acts as the last rank, after it has joined. Each other rank runs `body`.
void run(const std::function<void(Control&, RecordingClient&)>& body,
         const std::function<void(Membership&)>& play) {
  Barrier over(kRanks);
  run_ranks(kRanks, [&](const Job& job) {
    if (job.rank == kPlayed) {
      Membership membership = bootstrap::join(job, "tutti-played-rank");
      play(membership);
      over.wait();
      return;
    }
    const std::shared_ptr<Control> control = Control::connect(job);
    AttachedClient client(*control, kWorld, everybody(kRanks));
    body(*control, *client.operator->());
    over.wait();
  });
}

class GivingUp : public ::testing::Test {
 protected:
  void SetUp() override { settings().set("TUTTI_NETWORK_TIMEOUT", "2"); }
};

// The network of the last rank's host was cut and works again. The rank considers the others dead
// and would report this.
TEST_F(GivingUp, RefusesLinksOfARankConsideredDead) {
  Barrier heard(kRanks);
  run(
      [&](Control& control, RecordingClient& client) {
        EXPECT_EQ(client.wait_for_abort().rank(), kPlayed);
        heard.wait();
        for (int rank = 0; rank < kPlayed; ++rank) EXPECT_FALSE(control.has_died(rank));
      },
      [&](Membership& membership) {
        membership.links.clear();
        heard.wait();
        for (const int rank : {0, 1, 2}) {
          try {
            Link link = move_to(membership, rank);
            tell_death(link, 0);
            ADD_FAILURE() << "rank " << rank << " takes a link of a rank that was given up";
          } catch (const Error& error) {
            EXPECT_EQ(error.code(), ErrorCode::connection_lost);
            EXPECT_THAT(error.what(), HasSubstr("excluded"));
          }
        }
      });
}

// The last rank reports to rank 1 that rank 0 is dead. Rank 1 does not believe this, because its
// own link to rank 0 works.
TEST_F(GivingUp, ExcludesOneOfTwoRanksThatCannotCommunicate) {
  run(
      [&](Control& control, RecordingClient& client) {
        const Error error = client.wait_for_abort();
        EXPECT_EQ(error.rank(), kPlayed) << error.what();
        EXPECT_THAT(error.what(), HasSubstr("is excluded from the job: it cannot reach rank 0"));
        for (int rank = 0; rank < kPlayed; ++rank) EXPECT_FALSE(control.has_died(rank));
      },
      [&](Membership& membership) {
        Link link = move_to(membership, 1);
        tell_death(link, 0);
        // When rank 1 excludes this rank, it closes the link. It does not report a death to
        // this rank, because this rank's part of the job may be the one that continues.
        bool told = false;
        const auto take = [&](std::string_view body) {
          told |= FrameReader(body).type() == FrameType::death;
          return true;
        };
        const Deadline deadline = Deadline::after(kPatience);
        while (link.receive(take, bootstrap::kMaxFrameBytes)) {
          ASSERT_TRUE(bootstrap::wait_for(link.fd(), POLLIN, deadline)) << "the link stays";
        }
        EXPECT_FALSE(told);
      });
}

// The last rank takes part in the control channel, but accepts no data connections. Rank 1 reports
// that it could not connect.
TEST_F(GivingUp, RanksAgreeIfTwoLiveButCannotConnect) {
  const Contribution contribution{.members = everybody(kRanks), .flags = 1, .separates = true};
  run(
      [&](Control& control, RecordingClient& client) {
        if (control.rank() == 1) control.suspect(kWorld, kPlayed, "a connection broke");
        const Error error = client.wait_for_abort();
        EXPECT_EQ(error.code(), ErrorCode::connection_lost);
        EXPECT_EQ(error.rank(), kPlayed);
        const Agreed agreed = agreed_in(control.agree(kWorld, 1, contribution, kPatience).get());
        EXPECT_EQ(agreed.living, (std::vector<int>{0, 1, 2}));
        EXPECT_FALSE(control.has_died(kPlayed));
      },
      [&](Membership& membership) {
        PlayedAgreements agreements(membership.links.at(0));
        EXPECT_EQ(agreements.agree(1, contribution).living, (std::vector<int>{0, 1, 2}));
      });
}

}  // namespace
}  // namespace tutti::testing
