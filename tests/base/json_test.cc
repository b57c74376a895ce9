// Tests JSON: values are equal after being written and read, and malicious input is refused.
#include "base/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/error.h"

namespace tutti {
namespace {

using testing::HasSubstr;

// Returns the error of parse(), or "" if the text is accepted.
std::string problem_of(const std::string& text) {
  try {
    Json::parse(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    return error.what();
  }
  return "";
}

TEST(Json, WritesMembersInTheOrderOfTheirCreation) {
  Json json = {{"z", 1}, {"a", {1, 2.5, "x"}}, {"none", nullptr}, {"yes", true}};
  json["more"]["inside"] = "é\n";
  json["list"].push_back(-3);
  EXPECT_EQ(
      json.dump(),
      R"({"z":1,"a":[1,2.5,"x"],"none":null,"yes":true,"more":{"inside":"é\n"},"list":[-3]})");
  EXPECT_EQ((Json{{"a", {1, {{"b", Json::array()}}}}, {"c", Json::object()}}.dump(1)),
            "{\n \"a\": [\n  1,\n  {\n   \"b\": []\n  }\n ],\n \"c\": {}\n}");
}

TEST(Json, ReadsWhatItWrote) {
  const Json json = {{"tenth", 0.1},
                     {"tiny", 5e-324},
                     {"most", std::numeric_limits<uint64_t>::max()},
                     {"least", std::numeric_limits<int64_t>::min()},
                     {"two", 2.0},
                     {"text", std::string("\0\"\\/\x7f", 5)}};
  const Json same = Json::parse(json.dump());
  EXPECT_EQ(same, json);
  EXPECT_EQ(same["most"].get<uint64_t>(), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(same["least"].get<int64_t>(), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(same["tiny"].get<double>(), 5e-324);
  EXPECT_EQ(same["text"].get<std::string>().size(), 5U);
  EXPECT_EQ(Json::parse("[1,2,3]").get<std::vector<int>>(), (std::vector<int>{1, 2, 3}));
}

TEST(Json, ComparesMembersInAnyOrder) {
  EXPECT_EQ(Json::parse(R"({"a":1,"b":{"c":2,"d":3.0}})"),
            Json::parse(R"({"b":{"d":3,"c":2},"a":1.0})"));
  EXPECT_FALSE(Json::parse(R"({"a":1})") == Json::parse(R"({"a":1,"b":2})"));
  EXPECT_LT(Json(-1), Json(std::numeric_limits<uint64_t>::max()));
}

TEST(Json, RefusesNumbersThatDoNotFit) {
  EXPECT_THROW(Json(300).get<uint8_t>(), Error);
  EXPECT_THROW(Json(-1).get<uint64_t>(), Error);
  EXPECT_THROW(Json(1.5).get<int>(), Error);
  EXPECT_THROW(Json(std::numeric_limits<uint64_t>::max()).get<int64_t>(), Error);
  EXPECT_THROW(Json("7").get<int>(), Error);
  EXPECT_THROW(Json(7).get<std::string>(), Error);
  EXPECT_EQ(Json(7).get<double>(), 7.0);
}

TEST(Json, ReportsMissingMembersAndOtherTypes) {
  const Json json = Json::parse(R"({"a":[1,"\u001b[2J"]})");
  const auto said = [](const auto& ask) {
    try {
      ask();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(said([&] { json.at("b"); }), HasSubstr("\"b\" is missing"));
  EXPECT_THAT(said([&] { json.at("a").at(2); }), HasSubstr("at least 3 values"));
  EXPECT_THAT(said([&] { json.at("a").at(1).get<int>(); }), HasSubstr(R"(found "\x1b[2J")"));
  EXPECT_THAT(said([&] { json.items().front().value.items(); }), HasSubstr("found an array"));
}

TEST(Json, RefusesDeepNesting) {
  const size_t most = Json::kMaxDepth;
  EXPECT_EQ(problem_of(std::string(most, '[') + std::string(most, ']')), "");
  EXPECT_THAT(problem_of(std::string(most + 1, '[') + std::string(most + 1, ']')),
              HasSubstr("nested more than 64 levels"));
  EXPECT_THAT(problem_of(std::string(10'000'000, '[')), HasSubstr("nested more than 64 levels"));
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += "{\"a\":";
  EXPECT_THAT(problem_of(objects), HasSubstr("nested more than 64 levels"));
}

TEST(Json, RefusesANameThatAnObjectHasTwice) {
  EXPECT_THAT(problem_of(R"([{"a":1,"b":2,"a":3}])"), HasSubstr("\"a\" appears twice"));
  EXPECT_EQ(problem_of(R"([{"a":1},{"a":1}])"), "");
}

TEST(Json, ErrorsAreShortAndPrintable) {
  for (const std::string& text :
       {std::string("\x1b[2J{"), "{\"" + std::string(100'000, '\x07') + "\"",
        "{\"" + std::string(100'000, 'x') + "\" 1}", std::string("{\"a\":\"\xff\"}"),
        std::string("{\"\x1b]0;title\":1,\"\x1b]0;title\":1}"), std::string()}) {
    const std::string problem = problem_of(text);
    EXPECT_FALSE(problem.empty());
    EXPECT_LT(problem.size(), 400U);
    for (const char c : problem) EXPECT_TRUE(c >= ' ' && c <= '~') << problem;
  }
}

TEST(Json, WritesInvalidUtf8OnlyIfItMayBeReplaced) {
  const Json json = {{"name", "\xff"}};
  EXPECT_THROW(json.dump(), Error);
  EXPECT_EQ(json.dump(-1, Json::BadText::replace), "{\"name\":\"\xef\xbf\xbd\"}");
  EXPECT_EQ(Json(std::numeric_limits<double>::quiet_NaN()).dump(), "null");
}

}  // namespace
}  // namespace tutti
