#include "training/core/schema.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "base/error.h"

namespace tutti {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

enum class Shape { round, square };

class SchemaTest : public ::testing::Test {
 protected:
  SchemaTest() {
    schema.add("shape", shape, {{"round", Shape::round}, {"square", Shape::square}}, "which one");
    schema.add("count", count, "how many").between(1, 10);
    schema.add("size.width", width, "of one");
    schema.add("size.rates", rates, "several");
    schema.add("size.tied", tied, "apart").flag("--untied", false);
    schema.add("steps", steps, "none: all");
  }

  std::string refusal(const Json& json) const {
    try {
      schema.read(json, "run.json", "model");
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  Shape shape = Shape::round;
  int64_t count = 2;
  double width = 1.5;
  std::vector<double> rates;
  bool tied = true;
  std::optional<int64_t> steps;
  Schema schema;
};

TEST_F(SchemaTest, WrittenValuesAreReadBack) {
  const Json before = schema.write();
  EXPECT_EQ(before, Json::parse(R"({"shape": "round", "count": 2, "size": {"width": 1.5,
                                    "rates": [], "tied": true}})"));
  const Json other = Json::parse(R"({"shape": "square", "size": {"rates": [1, 0.5], "tied": false},
                                     "steps": 7})");
  schema.read(other);
  EXPECT_EQ(shape, Shape::square);
  EXPECT_EQ(count, 2);
  EXPECT_THAT(rates, ElementsAre(1, 0.5));
  EXPECT_FALSE(tied);
  EXPECT_EQ(steps, 7);
  const Json after = schema.write();
  schema.read(before);
  schema.read({{"steps", nullptr}});
  EXPECT_EQ(schema.write(), before);
  schema.read(after);
  EXPECT_EQ(schema.write(), after);
}

TEST_F(SchemaTest, NamesTheErrorAndItsPlace) {
  EXPECT_THAT(refusal({{"cuont", 1}}),
              AllOf(HasSubstr("unknown setting model.cuont"),
                    HasSubstr("did you mean model.count?"), HasSubstr("run.json")));
  EXPECT_THAT(refusal({{"size", {{"tide", true}}}}), HasSubstr("did you mean model.size.tied?"));
  EXPECT_THAT(
      refusal({{"count", "two"}}),
      AllOf(HasSubstr("model.count: expected an integer, not \"two\""), HasSubstr("run.json")));
  EXPECT_THAT(refusal({{"count", 1.5}}), HasSubstr("expected an integer, not 1.5"));
  EXPECT_THAT(refusal({{"count", 11}}), HasSubstr("from 1 to 10, not 11"));
  EXPECT_THAT(refusal({{"size", 3}}), HasSubstr("model.size: expected an object, not 3"));
  EXPECT_THAT(refusal({{"size", {{"rates", Json::array({1, "x"})}}}}),
              HasSubstr("expected a list of numbers"));
  EXPECT_THAT(refusal({{"shape", "squre"}}), HasSubstr("did you mean square?"));
  EXPECT_EQ(shape, Shape::round);
  EXPECT_EQ(count, 2);
}

TEST_F(SchemaTest, WordsAreReadByTheSameRules) {
  EXPECT_EQ(schema.find("count")->from_words({"3"}), Json(3));
  EXPECT_EQ(schema.find("size.width")->from_words({"3"}), Json(3.0));
  EXPECT_EQ(schema.find("size.rates")->from_words({"1", "2e-1"}), Json::parse("[1, 0.2]"));
  EXPECT_EQ(schema.find("size.tied")->from_words({"no"}), Json(false));
  EXPECT_EQ(schema.find("shape")->from_words({"square"}), Json("square"));
  for (const char* word : {"0", "11", "-1", "1.5", "x", "", "99999999999999999999"}) {
    EXPECT_THROW((void)schema.find("count")->from_words({word}), Error) << word;
  }
  for (const char* word : {"nan", "-1", "1e999", "1x"}) {
    EXPECT_THROW((void)schema.find("size.width")->from_words({word}), Error) << word;
  }
}

TEST_F(SchemaTest, MembersAreFoundByNamesWithDots) {
  Json json = Json::object();
  set_member(json, "a.b.c", 1);
  set_member(json, "a.d", 2);
  EXPECT_EQ(json, Json::parse(R"({"a": {"b": {"c": 1}, "d": 2}})"));
  EXPECT_EQ(*find_member(json, "a.b.c"), 1);
  EXPECT_EQ(find_member(json, "a.x.c"), nullptr);
  erase_member(json, "a.b.c");
  erase_member(json, "x.y");
  EXPECT_EQ(find_member(json, "a.b.c"), nullptr);
}

}  // namespace
}  // namespace tutti
