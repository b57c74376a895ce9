// Tests programs written as JSON and as pictures.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <pugixml.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "collectives/interchange/json.h"
#include "collectives/interchange/svg.h"
#include "collectives/interchange/timing.h"
#include "collectives/program/algorithm.h"
#include "collectives/proof/verify.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

struct Case {
  const Algorithm* algorithm;
  Shape shape;
};

// Returns every algorithm on each of some numbers of ranks that it supports.
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const Algorithm* algorithm : all_algorithms()) {
    for (const int32_t ranks : {1, 3, 8}) {
      for (const int32_t group : {1, 4}) {
        const Shape shape{.ranks = ranks, .root = ranks / 2, .layout = Layout::equal(ranks, group)};
        if (ranks % group == 0 && algorithm->supports(shape).empty()) {
          all.push_back({algorithm, shape});
        }
      }
    }
  }
  return all;
}

ProgramSet programs(const Case& c) {
  ProgramSet set{
      .collective = c.algorithm->collective, .algorithm = c.algorithm->name, .root = c.shape.root};
  for (Shape shape = c.shape; shape.rank < shape.ranks; ++shape.rank) {
    set.programs.push_back(c.algorithm->emit(shape));
  }
  return set;
}

std::vector<Plan> plans(const Case& c) {
  std::vector<Plan> all;
  for (Shape shape = c.shape; shape.rank < shape.ranks; ++shape.rank) {
    all.push_back(make_plan(c.algorithm->collective, shape, c.algorithm->emit(shape)));
  }
  return all;
}

Case built_in(Collective collective, const std::string& name, int32_t ranks) {
  return {&require_algorithm(collective, name), {.ranks = ranks}};
}

void expect_equal(const Step& a, const Step& b) {
  EXPECT_EQ(a.kind, b.kind);
  EXPECT_EQ(a.peers, b.peers);
  EXPECT_EQ(a.src, b.src);
  EXPECT_EQ(a.src2, b.src2);
  EXPECT_EQ(a.dst, b.dst);
  EXPECT_EQ(a.received_on_left, b.received_on_left);
  EXPECT_EQ(a.wire, b.wire);
}

TEST(Json, EveryProgramIsEqualAfterBeingReadBack) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(cat(name(c.algorithm->collective), ' ', c.algorithm->name, ' ', c.shape.ranks));
    const ProgramSet set = programs(c);
    const ProgramSet back = programs_from_json(to_json(set));
    EXPECT_EQ(back.collective, set.collective);
    EXPECT_EQ(back.algorithm, set.algorithm);
    EXPECT_EQ(back.root, set.root);
    ASSERT_EQ(back.programs.size(), set.programs.size());
    for (size_t rank = 0; rank < set.programs.size(); ++rank) {
      const Program& there = set.programs[rank];
      const Program& here = back.programs[rank];
      EXPECT_EQ(here.input_chunks, there.input_chunks);
      EXPECT_EQ(here.output_chunks, there.output_chunks);
      EXPECT_EQ(here.scratch_chunks, there.scratch_chunks);
      EXPECT_EQ(here.chunks_per_message, there.chunks_per_message);
      EXPECT_EQ(here.fan_out, there.fan_out);
      ASSERT_EQ(here.steps.size(), there.steps.size());
      for (size_t i = 0; i < there.steps.size(); ++i) expect_equal(here.steps[i], there.steps[i]);
    }
    const Proof proof{.root = set.root};
    EXPECT_EQ(verify(back.collective, back.programs, proof).grade,
              verify(set.collective, set.programs, proof).grade);
  }
}

TEST(Json, RefusesInvalidTextsAndNamesThePlace) {
  const std::string good = to_json(programs(built_in(Collective::all_reduce, "ring", 2)));
  struct Mutation {
    std::string from;
    std::string to;
    std::string said;
  };
  const std::vector<Mutation> mutations = {
      {good, "", "not JSON"},
      {good, good.substr(0, good.size() / 2), "truncated"},
      {good, "[]", "\"format\" is missing"},
      {"tutti-programs", "nutti-programs", "\"format\""},
      {"\"version\": 1", "\"version\": 2", "\"version\""},
      {"all_reduce", "all_educe", "\"all_educe\""},
      {"\"ranks\": 2", "\"ranks\": 3", "2 programs for 3 ranks"},
      {"\"ranks\": 2", "\"ranks\": 2000000000000", "\"ranks\" is not an integer"},
      {"\"root\": 0", "\"root\": 2", "root 2 is not one of"},
      {"\"kind\": \"send\"", "\"kind\": \"sned\"", "rank 0, step 0"},
      {"\"kind\": \"send\"", "\"kind\": \"sned\"", "\"sned\""},
      {"\"input\",", "\"imput\",", "unknown space"},
      {"\"received_on\": \"left\"", "\"received_on\": \"top\"", "\"top\""},
      {"\"wire\": \"element\"", "\"wire\": 3", "\"wire\" is not a string"},
      {"\"fan_out\": 1", "\"fan_out\": -1", "\"fan_out\" is not an integer"},
  };
  for (const Mutation& mutation : mutations) {
    std::string text = good;
    const size_t place = text.find(mutation.from);
    ASSERT_NE(place, std::string::npos) << mutation.from;
    text.replace(place, mutation.from.size(), mutation.to);
    try {
      programs_from_json(text);
      ADD_FAILURE() << mutation.from << " -> " << mutation.to << " was taken";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(mutation.said)) << mutation.to;
    }
  }
}

TEST(Timing, CountsTheRoundsOfThePapers) {
  const auto rounds = [](Collective collective, const std::string& name, int32_t ranks) {
    return time_steps(plans(built_in(collective, name, ranks))).rounds;
  };
  EXPECT_EQ(rounds(Collective::all_reduce, "ring", 5), 8);
  EXPECT_EQ(rounds(Collective::all_reduce, "ring", 1), 0);
  EXPECT_EQ(rounds(Collective::all_gather, "ring", 8), 7);
  EXPECT_EQ(rounds(Collective::barrier, "dissemination", 8), 3);
  EXPECT_EQ(rounds(Collective::barrier, "dissemination", 9), 4);
}

TEST(Timing, AMessageIsReceivedAtLeastOneRoundAfterItIsSent) {
  for (const Case& c : cases()) {
    const std::vector<Plan> all = plans(c);
    const Timing timing = time_steps(all);
    for (const TimedMessage& message : timing.messages) {
      EXPECT_GT(message.taken, message.sent);
      EXPECT_EQ(timing.ended[message.to][message.recv_step], message.taken);
    }
    for (const Plan& plan : all) {
      for (size_t i = 0; i < plan.program.steps.size(); ++i) {
        for (const int32_t need : plan.needs_of(static_cast<int32_t>(i))) {
          EXPECT_LE(timing.ended[plan.shape.rank][need], timing.ended[plan.shape.rank][i]);
        }
      }
    }
  }
}

TEST(Timing, RefusesProgramsThatDoNotTerminate) {
  Program waits{.steps = {recv(1, {output(0)}), send({1}, {input(0)})}};
  Program waits_too{.steps = {recv(0, {output(0)}), send({0}, {output(0)})}};
  const std::vector<Plan> stuck = {
      make_plan(Collective::broadcast, {.ranks = 2, .rank = 0, .root = 1}, waits_too),
      make_plan(Collective::broadcast, {.ranks = 2, .rank = 1, .root = 1}, waits)};
  EXPECT_THROW(time_steps(stuck), Error);
}

TEST(Figures, CountMessagesAndVolume) {
  const std::vector<Plan> ring = plans(built_in(Collective::all_reduce, "ring", 4));
  const Figures figures_of_ring = figures(ring, time_steps(ring));
  EXPECT_EQ(figures_of_ring.messages, 4 * 6);
  EXPECT_DOUBLE_EQ(figures_of_ring.volume, 1.5);
}

TEST(Svg, IsXmlWithAnArrowForEachMessage) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(cat(name(c.algorithm->collective), ' ', c.algorithm->name, ' ', c.shape.ranks));
    const std::vector<Plan> all = plans(c);
    const Timing timing = time_steps(all);
    const std::string svg = to_svg(all, timing, "a <title> & \"more\"", {"source"});
    pugi::xml_document document;
    ASSERT_TRUE(document.load_buffer(svg.data(), svg.size()));
    EXPECT_STREQ(document.child("svg").child("title").child_value(), "a <title> & \"more\"");
    EXPECT_EQ(document.select_nodes("//polygon").size(), timing.messages.size());
    EXPECT_EQ(document.select_nodes("//text[starts-with(., 'rank ')]").size(), all.size());
    EXPECT_EQ(document.select_nodes("//text[starts-with(., 'round ')]").size(),
              static_cast<size_t>(timing.rounds));
    for (const char* outside : {"<image", "@import", "font-face", "url("}) {
      EXPECT_THAT(svg, ::testing::Not(HasSubstr(outside)));
    }
  }
}

TEST(Svg, LabelsPartsOfTheData) {
  const std::vector<Plan> ring = plans(built_in(Collective::all_reduce, "ring", 8));
  EXPECT_EQ(parts(ring[0], {output(0, 4), output(6)}), "0-3,6");
  EXPECT_EQ(parts(ring[0], {output(0), output(2), output(4), output(6), output(1), output(3),
                            output(5), output(7), input(1)}),
            "0,2,4,6,1,3,5,7.. (9)");
}

}  // namespace
}  // namespace tutti
