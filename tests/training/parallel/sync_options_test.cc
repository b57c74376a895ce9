#include "training/parallel/sync_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace tutti::training {
namespace {

using ::testing::HasSubstr;

SyncOptions way(const std::string& text) {
  SyncOptions options;
  set_way(options, text);
  return options;
}

std::string refusal(const std::string& text) {
  try {
    way(text);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(SyncOptions, WrittenOptionsAreReadBack) {
  for (const char* text :
       {"allreduce",       "local:1",           "local:50",    "post-local:8@100",
        "diloco:50",       "diloco:50,4,3,0.5", "gossip:ring", "gossip:exp",
        "gossip:random",   "gossip:complete",   "sgp:exp",     "sgp:random",
        "easgd:8",         "easgd:8,0.25",      "fedavg:10",   "fedavg:10,0.5",
        "fedprox:10,0.01", "fedprox:10,0.01,0", "fedadam:10",  "fedadam:10,0.125"}) {
    EXPECT_EQ(text_of(way(text)), text);
  }
  EXPECT_EQ(text_of(way("diloco:8,1,0,0")), "diloco:8");
  EXPECT_EQ(text_of(way("diloco:8,2")), "diloco:8,2,0,0");
  EXPECT_EQ(text_of(way("diloco:8,2,1,0.33333333")), "diloco:8,2,1,0.33333333");
  EXPECT_EQ(text_of(way("sgp")), "sgp:exp");
  EXPECT_EQ(text_of(way("fedavg:10,1")), "fedavg:10");
  EXPECT_EQ(text_of(averages_every(4)), "local:4");
  EXPECT_EQ(text_of(averages_every(0)), "allreduce");
}

TEST(SyncOptions, AnotherMethodKeepsNoOptionOfThePreviousOne) {
  SyncOptions options{.outer_rate = 0.5, .secure_sums = true};
  set_way(options, "diloco:8,2,1,0.25");
  set_way(options, "diloco:4");
  EXPECT_EQ(text_of(options), "diloco:4");
  set_way(options, "fedprox:8,0.5,0.25");
  set_way(options, "fedavg:4");
  EXPECT_EQ(text_of(options), "fedavg:4");
  EXPECT_EQ(options.proximity, 0);
  EXPECT_EQ(options.outer_rate, 0.5);
  EXPECT_TRUE(options.secure_sums);
}

TEST(SyncOptions, NameTheError) {
  EXPECT_THAT(refusal("hogwild"), HasSubstr("there is no such method"));
  EXPECT_THAT(refusal(""), HasSubstr("there is no such method"));
  EXPECT_THAT(refusal("allreduce:1"), HasSubstr("use allreduce without a suffix"));
  for (const char* text : {"local",
                           "local:",
                           "local:0",
                           "local:-1",
                           "local:1.5",
                           "local:4@2",
                           "local:99999999999",
                           "post-local:4",
                           "post-local:4@",
                           "post-local:4@-1",
                           "diloco",
                           "diloco:0",
                           "diloco:4,5",
                           "diloco:4,0",
                           "diloco:4,2,2",
                           "diloco:4,1,4",
                           "diloco:5,2,2",
                           "diloco:500,3,166",
                           "diloco:4,1,0,1.5",
                           "diloco:4,1,0,nan",
                           "diloco:4,1,0,0,0",
                           "gossip",
                           "gossip:star",
                           "sgp:",
                           "sgp:exp,ring",
                           "easgd",
                           "easgd:0",
                           "easgd:4,1.5",
                           "easgd:4,0.5,1",
                           "fedavg",
                           "fedavg:0",
                           "fedavg:4,2",
                           "fedavg:4,0.5,1",
                           "fedprox:4",
                           "fedprox:4,-1",
                           "fedadam:4,nan"}) {
    EXPECT_THAT(refusal(text), HasSubstr("--sync")) << text;
  }
  for (const char* text : {"sgp:ring", "sgp:complete"}) {
    EXPECT_THAT(refusal(text), HasSubstr("sgp:exp or sgp:random")) << text;
  }
  EXPECT_THAT(refusal("gossip:star"), HasSubstr("ring, exp, random or complete"));
  EXPECT_THAT(refusal("diloco:4,2,2"), HasSubstr("the delay"));
}

}  // namespace
}  // namespace tutti::training
