// Tests that the bus bandwidth is computed as in nccl-tests.
#include "collectives/program/bus_factor.h"

#include <gtest/gtest.h>

namespace tutti {
namespace {

TEST(BusFactor, MatchesNcclTests) {
  EXPECT_DOUBLE_EQ(bus_factor(Collective::all_reduce, 4), 1.5);
  for (const Collective c : {Collective::all_gather, Collective::reduce_scatter, Collective::gather,
                             Collective::scatter, Collective::all_to_all}) {
    EXPECT_DOUBLE_EQ(bus_factor(c, 4), 0.75) << name(c);
  }
  for (const Collective c : {Collective::broadcast, Collective::reduce, Collective::send_recv}) {
    EXPECT_DOUBLE_EQ(bus_factor(c, 4), 1) << name(c);
  }
}

}  // namespace
}  // namespace tutti
