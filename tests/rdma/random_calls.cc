// Makes the random calls of property_test.cc in the job of this process.
//
//   RANDOM_BATCHES=N in the environment sets the number of batches.
#include <gtest/gtest.h>

#include <cstdlib>

#include "collectives/communicator.h"
#include "tests/collectives/random_batch.h"

namespace tutti {
namespace {

TEST(RandomCalls, MatchASerialReference) {
  constexpr uint64_t kSeed = 20261122;
  const char* const text = std::getenv("RANDOM_BATCHES");
  ASSERT_NE(text, nullptr) << "RANDOM_BATCHES says how many";
  Communicator comm = Communicator::init();
  ASSERT_GT(comm.size(), 1);
  for (int batch = 0; batch < std::atoi(text); ++batch) testing::run_batch(comm, kSeed + batch);
}

}  // namespace
}  // namespace tutti
