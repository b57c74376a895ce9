// Tests random calls against a serial reference (bench/layout.h): every collective, algorithm, type
// and operator, with odd counts and addresses, in and out of place, in every form of call.
//
//   PROPERTY_SEED=N in the environment sets the seed.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <tuple>

#include "base/settings.h"
#include "collectives/communicator.h"
#include "tests/collectives/random_batch.h"
#include "tests/support/fabrics.h"
#include "tests/support/ranks.h"

namespace tutti {
namespace {

uint64_t first_seed() {
  const char* text = std::getenv("PROPERTY_SEED");
  return text == nullptr ? 20240229 : std::strtoull(text, nullptr, 10);
}

class Property : public ::testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  void SetUp() override {
    const std::string problem = testing::lacks(std::get<0>(GetParam()));
    if (!problem.empty()) GTEST_SKIP() << problem;
    settings().set("TUTTI_TRANSPORT", std::get<0>(GetParam()));
  }
  void TearDown() override { settings().set("TUTTI_TRANSPORT", "auto"); }
};

INSTANTIATE_TEST_SUITE_P(All, Property,
                         ::testing::Combine(::testing::Values("shm", "tcp"),
                                            ::testing::Values(1, 2, 3, 4, 5, 7, 8, 16)),
                         [](const auto& info) {
                           return std::get<0>(info.param) + std::to_string(std::get<1>(info.param));
                         });

// Fabrics run with fewer numbers of ranks than the other transports, because their initialization
// takes longer.
INSTANTIATE_TEST_SUITE_P(Fabrics, Property,
                         ::testing::Combine(::testing::Values("ucx", "ofi"),
                                            ::testing::Values(2, 3, 5, 8)),
                         [](const auto& info) {
                           return std::get<0>(info.param) + std::to_string(std::get<1>(info.param));
                         });

TEST_P(Property, RandomCallsMatchASerialReference) {
  const int ranks = std::get<1>(GetParam());
  const int batches = 1600 / (ranks + 4);
  const uint64_t seed = first_seed() + 1000 * ranks;
  RecordProperty("seed", std::to_string(seed));
  testing::run_ranks(ranks, [&](const Job& job) {
    Communicator comm = Communicator::init(job);
    for (int batch = 0; batch < batches; ++batch) testing::run_batch(comm, seed + batch);
  });
}

}  // namespace
}  // namespace tutti
