#include "training/pipeline/svg.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <pugixml.hpp>
#include <set>
#include <string>

#include "base/text.h"
#include "tests/training/pipeline/hand_made.h"

namespace tutti::training::pipeline {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::Shown;
using testing::two_chunks;
using testing::two_ranks;
using testing::two_ways;

pugi::xml_document picture(const Shown& shown) {
  const std::string svg = to_svg(shown.plan, shown.timeline, "a <title> & more", {"one", "two"});
  pugi::xml_document document;
  EXPECT_TRUE(document.load_buffer(svg.data(), svg.size()));
  return document;
}

size_t boxes(const pugi::xml_document& document, const std::string& kind) {
  return document.select_nodes(cat("//rect[@class='", kind, "']").c_str()).size();
}

// Returns the rectangle of the entry with this title.
pugi::xml_node box(const pugi::xml_document& document, const std::string& title) {
  const pugi::xpath_node found = document.select_node(cat("//g[title='", title, "']/rect").c_str());
  EXPECT_TRUE(found) << title;
  return found.node();
}

double number(const pugi::xml_node& node, const char* attribute) {
  EXPECT_TRUE(node.attribute(attribute));
  return node.attribute(attribute).as_double();
}

TEST(PipelineSvg, HasABoxForEachEntryAndForEachIdleTime) {
  const pugi::xml_document document = picture(two_ranks());
  EXPECT_EQ(boxes(document, "forward"), 4u);
  EXPECT_EQ(boxes(document, "backward"), 4u);
  EXPECT_EQ(boxes(document, "backward_input"), 0u);
  EXPECT_EQ(boxes(document, "backward_weight"), 0u);
  EXPECT_EQ(boxes(document, "idle"), 4u);
  box(document, "rank 0: idle, 2 to 4");
  box(document, "rank 0: idle, 6 to 7");
  box(document, "rank 1: idle, 0 to 1");
  box(document, "rank 1: idle, 7 to 9");
}

TEST(PipelineSvg, DrawsRanksDownwardsAndTimeToTheRight) {
  const pugi::xml_document document = picture(two_ranks());
  const pugi::xml_node first =
      box(document, "rank 0: forward of micro-batch 0 through chunk 0, 0 to 1");
  const pugi::xml_node below =
      box(document, "rank 1: forward of micro-batch 1 through chunk 1, 4 to 5");
  const pugi::xml_node longer =
      box(document, "rank 0: backward of micro-batch 1 through chunk 0, 7 to 9");
  const double unit = number(first, "width");
  EXPECT_GE(unit, 18) << "its number can be read";
  EXPECT_DOUBLE_EQ(number(below, "x"), number(first, "x") + 4 * unit);
  EXPECT_DOUBLE_EQ(number(longer, "x"), number(first, "x") + 7 * unit);
  EXPECT_DOUBLE_EQ(number(longer, "width"), 2 * unit);
  EXPECT_DOUBLE_EQ(number(longer, "y"), number(first, "y"));
  EXPECT_GE(number(below, "y"), number(first, "y") + number(first, "height"));
  EXPECT_STREQ(below.parent().child_value("text"), "1") << "the micro-batch";
  EXPECT_STREQ(longer.parent().child_value("text"), "1");
}

TEST(PipelineSvg, LabelsTheDrawing) {
  const Shown shown = two_ranks();
  const pugi::xml_document document = picture(shown);
  EXPECT_STREQ(document.child("svg").child("title").child_value(), "a <title> & more");
  std::set<std::string> words;
  for (const pugi::xpath_node& text : document.select_nodes("//text")) {
    words.insert(text.node().child_value());
  }
  for (const char* expected : {"a <title> & more", "one", "two", "rank 0", "rank 1", "forward",
                               "backward", "idle", "33.3% idle"}) {
    EXPECT_TRUE(words.contains(expected)) << expected;
  }
  EXPECT_FALSE(words.contains("backward of weights")) << "there are none";
  EXPECT_FALSE(words.contains("weights change"));
  EXPECT_THAT(to_svg(shown.plan, shown.timeline, "", {}), Not(HasSubstr("dark to light")));
}

TEST(PipelineSvg, DistinguishesTheChunksOfARank) {
  const Shown shown = two_chunks();
  const pugi::xml_document document = picture(shown);
  EXPECT_EQ(boxes(document, "forward"), 2u);
  EXPECT_EQ(boxes(document, "backward_input"), 2u);
  EXPECT_EQ(boxes(document, "backward_weight"), 2u);
  EXPECT_EQ(boxes(document, "idle"), 0u);
  std::set<std::string> fills;
  for (const pugi::xpath_node& rect : document.select_nodes("//rect[@class]")) {
    fills.insert(rect.node().attribute("fill").value());
  }
  EXPECT_EQ(fills.size(), 6u) << "3 kinds in 2 shades";
  EXPECT_THAT(to_svg(shown.plan, shown.timeline, "", {}), HasSubstr("the 2 chunks of a rank"));
}

TEST(PipelineSvg, DistinguishesTheDirectionsOfMicroBatches) {
  const Shown shown = two_ways();
  const pugi::xml_document document = picture(shown);
  const auto fill = [&](const std::string& title) {
    return std::string(box(document, title).attribute("fill").value());
  };
  const std::string down = fill("rank 0: forward of micro-batch 0 through chunk 0, 0 to 1");
  const std::string up = fill("rank 1: forward of micro-batch 1 through chunk 0, 0 to 1");
  EXPECT_NE(down, up);
  EXPECT_EQ(fill("rank 1: forward of micro-batch 0 through chunk 1, 1 to 2"), down);
  EXPECT_EQ(fill("rank 0: forward of micro-batch 1 through chunk 1, 1 to 2"), up);
  EXPECT_THAT(to_svg(shown.plan, shown.timeline, "", {}), HasSubstr("from rank 0 to 1, 1 to 0"));
}

TEST(PipelineSvg, MarksWhereWeightsChange) {
  Shown shown = two_ranks();
  shown.plan.schedule.updates = Updates::latest;
  std::vector<Action>& actions = shown.plan.ranks[1].actions;
  actions.insert(actions.begin() + 2,
                 {.kind = Action::Kind::update, .entry = actions[1].entry, .version = 1});
  const pugi::xml_document document = picture(shown);
  const auto updates = document.select_nodes("//polygon[@class='update']");
  ASSERT_EQ(updates.size(), 1u);
  EXPECT_STREQ(updates[0].node().child_value("title"), "rank 1: weights of version 1 from 4 on");
}

TEST(PipelineSvg, StaysReadableWhereTimesDifferMuch) {
  Shown shown = two_ranks();
  shown.timeline.spans[1].end = 1 + 1e-5;  // too short to be visible
  const pugi::xml_document document = picture(shown);
  EXPECT_LE(number(document.child("svg"), "width"), 8300);
  const pugi::xml_node thin =
      box(document, "rank 0: forward of micro-batch 1 through chunk 0, 1 to 1.00001");
  EXPECT_FALSE(thin.parent().child("text")) << "no room for its number";
}

}  // namespace
}  // namespace tutti::training::pipeline
