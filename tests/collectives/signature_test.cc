// Tests the call signature in the header of every message.
#include "collectives/runtime/calls/signature.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/program/algorithm.h"

namespace tutti {
namespace {

TEST(Signature, KeepsEveryBitOfEveryField) {
  const uint64_t all_ids = (uint64_t{1} << kAlgorithmIdBits) - 1;
  for (const uint64_t id : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 19, uint64_t{1} << 20,
                            uint64_t{1} << 35, all_ids}) {
    for (const uint64_t count : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 47, kMostElements}) {
      for (const int32_t root : {0, 1, (1 << 30) - 1}) {
        const Signature signature{.collective = Collective::exscan,
                                  .dtype = DType::i64_i64,
                                  .op = ReduceOp::user,
                                  .uneven = true,
                                  .algorithm = id,
                                  .root = root,
                                  .count = count};
        EXPECT_EQ(decode(encode(signature)), signature) << id << ' ' << count << ' ' << root;
        Signature other = signature;
        other.count = 77;
        EXPECT_EQ(with_count(encode(signature), 77), encode(other));
      }
    }
  }
}

TEST(Signature, GarbageIsReportedAsSuch) {
  EXPECT_THAT(to_string(decode({~uint64_t{0}, ~uint64_t{0}})), testing::HasSubstr("garbled"));
}

}  // namespace
}  // namespace tutti
