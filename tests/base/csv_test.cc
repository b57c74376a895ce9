#include "base/csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace tutti {
namespace {

using ::testing::ElementsAre;

TEST(Csv, ReadsAsRfc4180Specifies) {
  const auto rows = parse_csv("a,b\r\n\"x, y\",\"say \"\"hi\"\"\"\n\n,\n\"two\nlines\",3\nlast");
  ASSERT_EQ(rows.size(), 5u);
  EXPECT_THAT(rows[0].values, ElementsAre("a", "b"));
  EXPECT_THAT(rows[1].values, ElementsAre("x, y", "say \"hi\""));
  EXPECT_THAT(rows[2].values, ElementsAre("", ""));
  EXPECT_EQ(rows[2].line, 4u);
  EXPECT_THAT(rows[3].values, ElementsAre("two\nlines", "3"));
  EXPECT_EQ(rows[4].line, 7u);
  EXPECT_THAT(rows[4].values, ElementsAre("last"));
  EXPECT_TRUE(parse_csv("").empty());
  EXPECT_TRUE(parse_csv("\n\n").empty());
  EXPECT_THROW(parse_csv("a,\"b"), Error);
}

}  // namespace
}  // namespace tutti
