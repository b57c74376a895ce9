// Runs a random call (tests/collectives/random_calls.h) inside kernels and checks it against its
// serial reference.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/collectives/gpu/emulated_gpus.h"
#include "tests/collectives/random_calls.h"

namespace tutti::testing {

// The seed of `setting` determines the data of the call, and the order in which threads run.
inline void assert_right(EmulatedGpus& gpus, const Algorithm& algorithm, const Case& c,
                         const GpuSetting& setting) {
  SCOPED_TRACE(describe(c) + ", seed " + std::to_string(setting.seed) +
               (setting.protocol == gpu::Protocol::simple ? ", simple" : ", lines"));
  std::vector<RankCall> calls;
  calls.reserve(static_cast<size_t>(c.layout.ranks));
  std::vector<Request> requests;
  for (int rank = 0; rank < c.layout.ranks; ++rank) {
    calls.emplace_back(c, rank, setting.seed);
    requests.push_back(calls.back().requests()[0]);
  }
  ASSERT_TRUE(gpus.run(algorithm, requests, setting));
  for (const RankCall& call : calls) ASSERT_EQ(call.problem(), "");
}

}  // namespace tutti::testing
