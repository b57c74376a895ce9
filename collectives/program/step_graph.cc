#include "collectives/program/step_graph.h"

#include <algorithm>
#include <tuple>

#include "base/error.h"

namespace tutti {

void StepGraph::add(const Plan& plan) {
  const int32_t offset = steps();
  const auto count = static_cast<int32_t>(plan.program.steps.size());
  edges_.clear();
  for (int32_t i = 0; i < count; ++i) {
    const Step& step = plan.program.steps[i];
    waits.push_back(receives(step.kind) ? 1 : 0);
    for (const int32_t need : plan.needs_of(i)) edges_.emplace_back(need, i);
    if (step.kind == StepKind::send) {
      for (const int32_t peer : step.peers) messages.push_back({plan.shape.rank, peer});
    } else if (receives(step.kind)) {
      receptions_.push_back({walked(), step.peers[0], offset + i});
    }
    first_message.push_back(static_cast<int32_t>(messages.size()));
  }
  for (const Plan::Queue& queue : plan.queues) {
    for (size_t i = 1; i < queue.steps.size(); ++i) {
      edges_.emplace_back(queue.steps[i - 1], queue.steps[i]);
    }
  }
  std::ranges::sort(edges_);
  edges_.erase(std::ranges::unique(edges_).begin(), edges_.end());
  auto edge = edges_.begin();
  for (int32_t i = 0; i < count; ++i) {
    for (; edge != edges_.end() && edge->first == i; ++edge) {
      followers.push_back(offset + edge->second);
      ++waits[offset + edge->second];
    }
    first_follower.push_back(static_cast<int32_t>(followers.size()));
  }
  first_step.push_back(steps());
}

bool StepGraph::match(const Ends& ends) {
  std::ranges::sort(receptions_);
  // One entry per message: the receiving plan, the sender, and the message's index.
  std::vector<std::tuple<int32_t, int32_t, int32_t>> sent;
  for (size_t i = 0; i < messages.size(); ++i) {
    const auto [plan, from] =
        ends ? ends(messages[i]) : std::pair(messages[i].to, messages[i].from);
    sent.emplace_back(plan, from, static_cast<int32_t>(i));
  }
  std::ranges::sort(sent);
  if (sent.size() != receptions_.size()) return false;
  for (size_t i = 0; i < sent.size(); ++i) {
    const auto [plan, from, number] = sent[i];
    const Reception& received = receptions_[i];
    if (plan != received.plan || from != received.from) return false;
    const bool same = i > 0 && plan == std::get<0>(sent[i - 1]) && from == std::get<1>(sent[i - 1]);
    if (!same) ++connections;
    messages[number].step = received.step;
    messages[number].connection = connections - 1;
  }
  receptions_ = {};
  return true;
}

StepGraph make_step_graph(std::span<const Plan> plans) {
  StepGraph graph;
  for (const Plan& plan : plans) graph.add(plan);
  if (graph.match()) return graph;
  throw Error(ErrorCode::invalid_argument, "the programs' messages do not match",
              {.remedy = "prove them first"});
}

}  // namespace tutti
