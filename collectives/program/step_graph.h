// The plans of all ranks as one graph: which step waits for which, and which step receives which
// message. It knows nothing of bytes and time: the planner, the simulator and the pictures of
// algorithms each walk it with a clock of their own.
//
//   rank 0   [send]──▶[copy]      followers: data that a step needs, and the order of its queues
//               ╲
//   rank 1      [recv]──▶[send]   messages: the k-th from one rank to another is the k-th that
//                                 the other receives from it
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
    int32_t from = 0;  // ranks
    int32_t to = 0;
    int32_t step = -1;       // that receives it
    int32_t connection = 0;  // equal for those from one rank to another
  };

  // Steps are numbered over all plans, in the order in which these were added.
  std::vector<int32_t> first_step{0};  // by plan, and the end
  std::vector<int32_t> waits;          // by step: for so many steps and messages
  std::vector<int32_t> first_follower{0};
  std::vector<int32_t> followers;  // steps of the same rank that wait for this one
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

  // Where a message goes among the plans that were added: to which of them, and from which rank as
  // that one sees it.
  using Ends = std::function<std::pair<int32_t, int32_t>(const Message&)>;

  void add(const Plan& plan);
  // When all are added: says which step receives each message. Returns false where what is sent is
  // not what is received. Without `ends`, plan r is rank r's.
  [[nodiscard]] bool match(const Ends& ends = {});

 private:
  struct Reception {
    int32_t plan;
    int32_t from;  // a rank
    int32_t step;
    auto operator<=>(const Reception&) const = default;
  };
  std::vector<Reception> receptions_;               // until they are matched
  std::vector<std::pair<int32_t, int32_t>> edges_;  // of the plan that is being added
};

// Of all ranks' plans, rank 0's first. Throws Error(invalid_argument) where messages do not match.
StepGraph make_step_graph(std::span<const Plan> plans);

}  // namespace tutti
