// Tests correct programs on slow links: a rank that has finished leaves while its last bytes are
// still in flight, and no rank reports that as an error.
#include <atomic>
#include <string>
#include <thread>

#include "base/text.h"
#include "tests/tools/cli/two_hosts.h"

namespace tutti::tool {
namespace {

class OneCall : public TwoHosts {
 protected:
  void expect_right(const std::string& collective, uint64_t count) const {
    const std::string program = std::filesystem::absolute("tests/tools/cli/one_call");
    const Result result = start_on_both(4, {program, collective, cat(count)}).finish();
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_THAT(result.err, IsQuiet());
  }
};

class SlowLink : public OneCall, public ::testing::WithParamInterface<std::string> {
 protected:
  void SetUp() override {
    TwoHosts::SetUp();
    if (IsSkipped()) return;
    const Result probe = shape("1mbit");
    if (probe.code != 0) GTEST_SKIP() << "links cannot be made slow here: " << probe.err;
  }

  Result shape(const std::string& rate) const {
    std::string script = "set -e; PATH=$PATH:/usr/sbin:/sbin\n";
    for (const std::string& host : {a_, b_}) {
      script += cat("ip netns exec ", host, " tc qdisc replace dev cable root tbf rate ", rate,
                    " burst 16k latency 50ms\n");
    }
    return shell(script);
  }

  // While the object exists, the cable repeatedly carries nothing for half a second and then works
  // for more than a second. With a shorter pause all keepalive probes of a link, one per second,
  // might get lost.
  class Blips {
   public:
    explicit Blips(std::string host) : host_(std::move(host)), thread_([this] { run(); }) {}
    Blips(const Blips&) = delete;
    Blips& operator=(const Blips&) = delete;
    ~Blips() {
      stop_ = true;
      thread_.join();
    }

   private:
    void run() const {
      const std::string change = cat("ip -n ", host_, " neigh ");
      while (!stop_) {
        // Sends packets to an unused address.
        shell(cat("sleep 0.3; ", change, "replace 10.199.0.2 lladdr 02:00:00:00:00:01 dev cable",
                  " nud permanent; sleep 0.5; ", change, "del 10.199.0.2 dev cable; sleep 0.8"));
      }
    }

    const std::string host_;
    std::atomic<bool> stop_{false};
    std::thread thread_;
  };
};

// On a link of full speed, ranks use shared memory and sockets at the same time.
TEST_F(OneCall, WaitingForABusyPeerCostsNextToNothing) { expect_right("wait", 1); }

// The broadcast takes six seconds.
TEST_F(SlowLink, RootOfABroadcastLeavesAtOnce) { expect_right("broadcast", 200'000); }

INSTANTIATE_TEST_SUITE_P(Each, SlowLink,
                         ::testing::Values("broadcast", "all_reduce", "reduce", "reduce_scatter",
                                           "all_gather", "gather", "scatter", "all_to_all", "scan",
                                           "exscan", "barrier", "send"),
                         [](const auto& info) { return info.param; });

TEST_P(SlowLink, SurvivesBlips) {
  ASSERT_EQ(shape("100mbit").code, 0);
  const Blips blips(a_);
  for (int turn = 0; turn < 2; ++turn) expect_right(GetParam(), 100'000);
}

}  // namespace
}  // namespace tutti::tool
