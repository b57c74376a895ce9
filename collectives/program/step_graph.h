// The plans of all ranks as one graph: dependencies between steps, and the receiving step of each
// message. The graph has no bytes and no times; the planner, the simulator and the pictures of
// algorithms each walk it with their own clock.
//
//   rank 0   [send]──▶[copy]      followers: steps that need this step's data,
//               ╲                 or follow it in a queue
//   rank 1      [recv]──▶[send]   messages: the k-th message from a to b matches the k-th receive
//                                 of b from a
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "collectives/program/plan.h"

namespace tutti {

struct StepGraph {
  struct Message {
    int32_t from = 0;        // rank that sends the message
    int32_t to = 0;          // rank that receives the message
    int32_t step = -1;       // index of the step that receives it; -1: not matched yet
    int32_t connection = 0;  // equal for messages with the same sender and receiver
  };

  // Indices of steps count the steps of all plans, in the order of add(). first_step[k] is the
  // index of the first step of plan k; one more entry at the end is the number of all steps.
  std::vector<int32_t> first_step{0};
  std::vector<int32_t> waits;  // by step: number of steps and messages that it waits for
  std::vector<int32_t> first_follower{0};
  std::vector<int32_t> followers;  // for each step, the steps of its rank that wait for it
  std::vector<int32_t> first_message{0};
  std::vector<Message> messages;
  int32_t connections = 0;

  int32_t steps() const { return static_cast<int32_t>(waits.size()); }
  int32_t walked() const { return static_cast<int32_t>(first_step.size()) - 1; }
  std::span<const int32_t> followers_of(int32_t step) const {
    return {followers.data() + first_follower[step], followers.data() + first_follower[step + 1]};
  }
  std::span<const Message> messages_of(int32_t step) const {
    return {messages.data() + first_message[step], messages.data() + first_message[step + 1]};
  }

  // Function that returns the index of the plan that receives a message, and the rank from which
  // that plan receives it.
  using Ends = std::function<std::pair<int32_t, int32_t>(const Message&)>;

  void add(const Plan& plan);
  // Finds the receiving step of each message; call it after the last add(). Returns false if sends
  // and receives do not match. Without `ends`, plan r is rank r's plan.
  [[nodiscard]] bool match(const Ends& ends = {});

 private:
  struct Reception {
    int32_t plan;
    int32_t from;  // rank that sends the message
    int32_t step;
    auto operator<=>(const Reception&) const = default;
  };
  std::vector<Reception> receptions_;               // receives that are not matched yet
  std::vector<std::pair<int32_t, int32_t>> edges_;  // edges of the plan being added
};

// Builds the graph of all ranks' plans, in rank order. Throws Error(invalid_argument) if messages
// do not match.
StepGraph make_step_graph(std::span<const Plan> plans);

}  // namespace tutti
