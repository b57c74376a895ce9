#include "collectives/interchange/timing.h"

#include <algorithm>

#include "base/error.h"
#include "collectives/program/step_graph.h"

namespace tutti {

namespace {

struct Rounds {
  std::vector<int32_t> begun;  // by step: round in which it begins
  std::vector<int32_t> ended;
};

// Returns the rounds. A step begins when the last of its predecessors has ended. A send takes one
// round, and all other steps take no time.
Rounds rounds_of(const StepGraph& graph, std::span<const Plan> plans) {
  std::vector<int32_t> lengths;
  for (const Plan& plan : plans) {
    for (const Step& step : plan.program.steps) lengths.push_back(step.kind == StepKind::send);
  }
  Rounds rounds{std::vector<int32_t>(graph.steps(), 0), std::vector<int32_t>(graph.steps(), 0)};
  std::vector<int32_t> waits = graph.waits;
  std::vector<int32_t> ready;
  for (int32_t step = 0; step < graph.steps(); ++step) {
    if (waits[step] == 0) ready.push_back(step);
  }
  const auto pass = [&](int32_t step, int32_t round) {
    rounds.begun[step] = std::max(rounds.begun[step], round);
    if (--waits[step] == 0) ready.push_back(step);
  };
  for (size_t done = 0; done < ready.size(); ++done) {
    const int32_t step = ready[done];
    const int32_t end = rounds.ended[step] = rounds.begun[step] + lengths[step];
    for (const int32_t follower : graph.followers_of(step)) pass(follower, end);
    for (const StepGraph::Message& message : graph.messages_of(step)) pass(message.step, end);
  }
  if (ready.size() == waits.size()) return rounds;
  throw Error(ErrorCode::invalid_argument, "the programs make no progress",
              {.remedy = "prove them first"});
}

}  // namespace

Timing time_steps(std::span<const Plan> plans) {
  const StepGraph graph = make_step_graph(plans);
  const auto [begun, ended] = rounds_of(graph, plans);
  Timing timing;
  for (int32_t rank = 0; rank < graph.walked(); ++rank) {
    const int32_t first = graph.first_step[rank];
    const int32_t last = graph.first_step[rank + 1];
    timing.ended.emplace_back(ended.begin() + first, ended.begin() + last);
    for (int32_t step = first; step < last; ++step) {
      timing.rounds = std::max(timing.rounds, ended[step]);
      for (const StepGraph::Message& message : graph.messages_of(step)) {
        timing.messages.push_back({.from = message.from,
                                   .to = message.to,
                                   .send_step = step - first,
                                   .recv_step = message.step - graph.first_step[message.to],
                                   .sent = begun[step],
                                   .taken = begun[message.step]});
      }
    }
  }
  std::ranges::stable_sort(timing.messages, {}, &TimedMessage::sent);
  return timing;
}

}  // namespace tutti
