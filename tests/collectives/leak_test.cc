// Tests that descriptors, threads and mappings are released when a communicator is destroyed.
#include <gtest/gtest.h>

#include <string>

#include "base/settings.h"
#include "collectives/communicator.h"
#include "tests/support/fabrics.h"
#include "tests/support/leftovers.h"
#include "tests/support/ranks.h"
#include "transport/fabric/provider.h"

namespace tutti {
namespace {

class Leaks : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const std::string problem = testing::lacks(GetParam());
    if (!problem.empty()) GTEST_SKIP() << problem;
    settings().set("TUTTI_TRANSPORT", GetParam());
  }
  void TearDown() override { settings().set("TUTTI_TRANSPORT", "auto"); }
};

INSTANTIATE_TEST_SUITE_P(All, Leaks, ::testing::Values("shm", "tcp", "ucx", "ofi"),
                         [](const auto& info) { return info.param; });

TEST_P(Leaks, ThousandCommunicators) {
  const auto run = [](int communicators) {
    testing::run_ranks(2, [communicators](const Job& job) {
      Communicator world = Communicator::init(job);
      for (int i = 0; i < communicators; ++i) {
        Communicator copy = world.duplicate();
        int32_t one = 1;
        copy.all_reduce(std::span(&one, 1));
        ASSERT_EQ(one, 2);
      }
    });
  };
  run(1);
  const size_t descriptors = testing::open_descriptors();
  const size_t threads = testing::running_threads();  // sanitizers have a thread of their own
  run(1000);
  if (fabric::Provider::drivers_kept() > 0) {
    GTEST_SKIP() << "a connection broke while the other rank left, so the driver stays for good";
  }
  EXPECT_EQ(testing::open_descriptors(), descriptors);
  EXPECT_LE(testing::threads_at_rest(threads), threads);
  EXPECT_EQ(testing::shared_mappings(), 0);
}

}  // namespace
}  // namespace tutti
