// Tests which faults a job must survive, and which error must name a rank.
#include "tools/chaos/plan.h"

#include <gtest/gtest.h>

namespace tutti::tool::chaos {
namespace {

TEST(Faults, OnlyShortLossesOfTheNetworkAreHarmless) {
  for (const Kind kind : {Kind::cut, Kind::drop}) {
    Fault fault{.kind = kind};
    if (kind == Kind::drop) fault.hosts = {"a", "b"};
    EXPECT_FALSE(is_harmless(fault)) << "permanent";
    fault.for_ms = kShortCutMs;
    EXPECT_TRUE(is_harmless(fault));
    fault.for_ms = kShortCutMs + 1;
    EXPECT_FALSE(is_harmless(fault)) << "peers may be declared dead";
    EXPECT_TRUE(is_survivable(fault)) << "the others go on";
    EXPECT_FALSE(has_victim(fault)) << "it strikes no single rank";
  }
  EXPECT_FALSE(is_survivable({.kind = Kind::cut})) << "nothing can be reached";
}

TEST(Faults, PausesAndDelaysAreHarmless) {
  for (const Kind kind : {Kind::pause, Kind::delay, Kind::clock}) {
    EXPECT_TRUE(is_harmless({.kind = kind})) << static_cast<int>(kind);
  }
  for (const Kind kind : {Kind::kill, Kind::stop, Kind::stall, Kind::truncate, Kind::abort}) {
    EXPECT_FALSE(is_harmless({.kind = kind})) << static_cast<int>(kind);
    EXPECT_TRUE(has_victim({.kind = kind})) << static_cast<int>(kind);
  }
  EXPECT_FALSE(has_victim({.kind = Kind::kill, .rank = kLauncher}));
}

}  // namespace
}  // namespace tutti::tool::chaos
