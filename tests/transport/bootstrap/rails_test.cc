// Tests data connections over several networks (rails). Loopback addresses stand for the networks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/host_name.h"
#include "base/text.h"
#include "tests/support/ranks.h"
#include "tests/transport/bootstrap/recording_client.h"
#include "transport/bootstrap/control/control.h"
#include "transport/bootstrap/handshake/connector.h"
#include "transport/bootstrap/handshake/socket.h"

namespace tutti::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kWorld = 1;
constexpr int kLanes = 5;

std::string address_of_rail(int rail) { return cat("127.0.0.", rail + 1); }

// Returns jobs of ranks that meet on rail 0. Rank r has rails[r] rails.
std::vector<Job> jobs_with_rails(LocalRendezvous& meeting, const std::vector<int>& rails) {
  std::vector<Job> jobs;
  for (size_t rank = 0; rank < rails.size(); ++rank) {
    Job& job =
        jobs.emplace_back(meeting.job(static_cast<int>(rank), static_cast<int>(rails.size())));
    job.interface = address_of_rail(0);
    for (int rail = 1; rail < rails[rank]; ++rail) {
      job.more_interfaces.push_back(address_of_rail(rail));
    }
  }
  return jobs;
}

TEST(Rails, CarryLanesInTurnIfBothRanksHaveThem) {
  const std::vector<int> rails = {2, 3, 3, 1};
  const auto ranks = static_cast<int>(rails.size());
  LocalRendezvous meeting;
  Barrier done(ranks);
  const auto errors = run_jobs_catching(jobs_with_rails(meeting, rails), [&](const Job& job) {
    const std::shared_ptr<Control> control = Control::connect(job);
    AttachedClient client(*control, kWorld, everybody(ranks));
    for (int peer = 0; peer < ranks; ++peer) {
      EXPECT_EQ(control->peer(peer).rails(), static_cast<size_t>(rails[peer]));
      for (int lane = 0; lane < kLanes && peer != job.rank; ++lane) {
        control->open_connection(kWorld, peer, lane, {});
      }
    }
    for (int peer = 0; peer < ranks; ++peer) {
      for (int lane = 0; lane < kLanes && peer != job.rank; ++lane) {
        const std::string there = address_of_rail(lane % std::min(rails[job.rank], rails[peer]));
        const ByteStream opened = client->wait_for_opened(peer, lane);
        EXPECT_EQ(bootstrap::peer_address(opened.get()).host(), there);
        EXPECT_EQ(bootstrap::local_address(opened.get()).host(), there);
        EXPECT_TRUE(client->wait_for_connection(peer, lane));
      }
    }
    done.wait();
  });
  for (const auto& error : errors) EXPECT_FALSE(error.has_value()) << error->what();
}

// If a connection over a rail is silent, the connection that replaces it, and later ones, use
// another rail.
TEST(Rails, SilentRailsArePassedOver) {
  LocalRendezvous meeting;
  Barrier done(2);
  const auto errors = run_jobs_catching(jobs_with_rails(meeting, {2, 2}), [&](const Job& job) {
    const std::shared_ptr<Control> control = Control::connect(job);
    AttachedClient client(*control, kWorld, everybody(2));
    const int peer = 1 - job.rank;
    const auto rail_of = [&](int lane, Renewal renewal) {
      control->open_connection(kWorld, peer, lane, renewal);
      const ByteStream opened = client->wait_for_opened(peer, lane);
      EXPECT_TRUE(client->wait_for_connection(peer, lane));
      return bootstrap::peer_address(opened.get()).host();
    };
    EXPECT_EQ(rail_of(1, {.number = 1}), address_of_rail(1));
    EXPECT_EQ(rail_of(3, {.number = 1, .detours = 1}), address_of_rail(0));
    EXPECT_EQ(rail_of(5, {}), address_of_rail(0));
    done.wait();
  });
  for (const auto& error : errors) EXPECT_FALSE(error.has_value()) << error->what();
}

TEST(Rails, MissingRailsAreNamed) {
  LocalRendezvous meeting;
  Job job = jobs_with_rails(meeting, {1, 1})[0];
  job.more_interfaces = {"no-such-rail"};
  try {
    Control::connect(job);
    ADD_FAILURE() << "there is no such interface";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::bootstrap);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("TUTTI_INTERFACE names 'no-such-rail'"),
                                    HasSubstr(host_name()), HasSubstr("remedy: run `ip address`")));
  }
}

// Packets from a loopback address do not reach addresses of the documentation network.
TEST(Rails, LostConnectionsNameBothAddresses) {
  using namespace bootstrap;
  PeerInfo peer;
  peer.address = address_of_rail(0);
  peer.more_rails = {{"192.0.2.1", 4711}};
  Connector connector(
      "key", 2, {resolve(address_of_rail(0), 0).front(), resolve(address_of_rail(1), 0).front()});
  Hello hello{.purpose = Purpose::data, .rank = 0, .size = 2};
  hello.lane = 3;
  connector.start(peer, 1, hello, "rank 1 (node7, pid 12)");
  PollSet set;
  std::optional<Error> lost;
  // A host without routes reports that its network is down, which is not final at once.
  const Deadline deadline = Deadline::after(kPatience);
  while (!lost && !deadline.passed()) {
    connector.watch(
        set, [](uint64_t, int, int, ByteStream) { ADD_FAILURE() << "opened"; },
        [&](uint64_t, int, const Error& error) { lost = error; });
    if (!lost) set.run();
  }
  ASSERT_TRUE(lost.has_value());
  EXPECT_EQ(lost->code(), ErrorCode::connection_lost);
  EXPECT_THAT(lost->what(),
              AllOf(HasSubstr("no connection to rank 1 (node7, pid 12) at 192.0.2.1:4711 from "
                              "127.0.0.2 (rail 1 of 2)"),
                    HasSubstr("likely cause"), HasSubstr("remedy: let TUTTI_INTERFACE list")));
}

}  // namespace
}  // namespace tutti::testing
