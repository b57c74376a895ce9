// Tests graphs of the steps in the plans of all ranks.
#include "collectives/program/step_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <utility>
#include <vector>

#include "base/error.h"
#include "collectives/program/algorithm.h"

namespace tutti {
namespace {

using ::testing::ElementsAre;

Step send(std::vector<int32_t> peers, int32_t chunk) {
  return {.kind = StepKind::send, .peers = std::move(peers), .src = {{Space::input, chunk, 1}}};
}
Step recv(int32_t peer, int32_t chunk) {
  return {.kind = StepKind::recv, .peers = {peer}, .dst = {{Space::output, chunk, 1}}};
}

std::vector<Plan> plans(std::vector<std::vector<Step>> all) {
  std::vector<Plan> made;
  for (int32_t rank = 0; rank < static_cast<int32_t>(all.size()); ++rank) {
    Program program;
    program.input_chunks = program.output_chunks = 4;
    program.steps = std::move(all[rank]);
    made.push_back(make_plan(Collective::all_reduce,
                             {.ranks = static_cast<int32_t>(all.size()), .rank = rank},
                             std::move(program), false));
  }
  return made;
}

TEST(StepGraph, TheKthMessageSentIsTheKthReceived) {
  //            rank 0: steps 0 and 1             rank 1: 2 and 3           rank 2: 4
  const StepGraph graph = make_step_graph(
      plans({{send({1, 2}, 0), send({1}, 1)}, {recv(0, 0), recv(0, 1)}, {recv(0, 2)}}));
  EXPECT_THAT(graph.first_step, ElementsAre(0, 2, 4, 5));
  EXPECT_THAT(graph.waits, ElementsAre(0, 1, 1, 2, 1)) << "for messages and the order of queues";
  EXPECT_THAT(graph.followers_of(0), ElementsAre(1));
  EXPECT_THAT(graph.followers_of(2), ElementsAre(3));
  ASSERT_EQ(graph.messages.size(), 3);
  EXPECT_EQ(graph.messages_of(0)[0].step, 2);
  EXPECT_EQ(graph.messages_of(0)[1].step, 4);
  EXPECT_EQ(graph.messages_of(1)[0].step, 3);
  EXPECT_EQ(graph.messages_of(0)[0].connection, graph.messages_of(1)[0].connection);
  EXPECT_EQ(graph.connections, 2);
}

TEST(StepGraph, WhatIsSentMustBeReceived) {
  EXPECT_THROW(make_step_graph(plans({{send({1}, 0)}, {}})), Error) << "nobody receives it";
  EXPECT_THROW(make_step_graph(plans({{}, {recv(0, 0)}})), Error) << "nobody sends it";
  EXPECT_THROW(make_step_graph(plans({{send({1}, 0)}, {}, {recv(0, 0)}})), Error)
      << "somebody else receives it";
}

TEST(StepGraph, EveryStepHasItsTurnInAnyOrder) {
  std::mt19937 random(7);
  for (const Algorithm& algorithm : built_in_algorithms()) {
    for (const int32_t ranks : {2, 3, 4, 8}) {
      const Shape shape{.ranks = ranks};
      if (!why_unsupported(algorithm, shape).empty()) continue;
      SCOPED_TRACE(testing::Message() << algorithm.name << " on " << ranks);
      const std::vector<Plan> all = make_plans(algorithm, shape);
      const StepGraph graph = make_step_graph(all);
      std::vector<int32_t> waits = graph.waits;
      std::vector<int32_t> ready;
      const auto pass = [&](int32_t step) {
        if (--waits[step] == 0) ready.push_back(step);
      };
      for (int32_t step = 0; step < graph.steps(); ++step) {
        if (waits[step] == 0) ready.push_back(step);
      }
      int32_t done = 0;
      for (; !ready.empty(); ++done) {
        std::swap(ready[random() % ready.size()], ready.back());
        const int32_t step = ready.back();
        ready.pop_back();
        for (const int32_t follower : graph.followers_of(step)) pass(follower);
        for (const StepGraph::Message& message : graph.messages_of(step)) {
          const Plan& receiver = all[message.to];
          const Step& its = receiver.program.steps[message.step - graph.first_step[message.to]];
          ASSERT_TRUE(receives(its.kind));
          ASSERT_EQ(its.peers[0], message.from);
          pass(message.step);
        }
      }
      EXPECT_EQ(done, graph.steps());
    }
  }
}

}  // namespace
}  // namespace tutti
