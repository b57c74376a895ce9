#include "collectives/simulate/joint_schedule.h"

#include <algorithm>

namespace tutti {

JointSchedule::JointSchedule(int32_t ranks, Symmetry symmetry, int32_t alike)
    : alike_(alike), symmetry_(symmetry), ranks_(static_cast<size_t>(ranks / alike)) {}

JointSchedule::Step JointSchedule::add(int32_t rank, StepKind kind, double bytes,
                                       double compute_us) {
  Rank& its = at(rank);
  its.kinds.push_back(kind);
  its.bytes.push_back(bytes);
  its.compute_us.push_back(compute_us);
  its.waits.push_back(0);
  return static_cast<Step>(its.kinds.size()) - 1;
}

JointSchedule::Step JointSchedule::compute(int32_t rank, double us) {
  return add(rank, StepKind::copy, 0, us);
}

std::pair<JointSchedule::Step, JointSchedule::Step> JointSchedule::message(int32_t from, int32_t to,
                                                                           double bytes) {
  const Step sent = add(from, StepKind::send, bytes);
  const Step received = add(to, StepKind::recv, bytes);
  at(from).messages.push_back({sent, to, received});
  ++at(to).waits[static_cast<size_t>(received)];
  return {sent, received};
}

void JointSchedule::order(int32_t rank, Step earlier, Step later) {
  at(rank).edges.emplace_back(earlier, later);
  ++at(rank).waits[static_cast<size_t>(later)];
}

std::vector<std::pair<JointSchedule::Step, JointSchedule::Step>> JointSchedule::collective(
    const Schedule& its, double bytes, std::span<const int32_t> members) {
  const auto rank_of = [&](int32_t member) { return members[static_cast<size_t>(member)]; };
  std::vector<std::pair<Step, Step>> ends;
  // One value per walked member: difference between a step's index here and its index in `its`.
  std::vector<Step> offsets;
  for (int32_t walked = 0; walked < its.walked(); ++walked) {
    const int32_t rank = rank_of(walked * its.alike);
    const Step first = compute(rank, 0);
    offsets.push_back(first + 1 - its.first_step[walked]);
    add_program(its, walked, bytes / its.buffer_chunks, rank);
    const Step last = compute(rank, 0);
    for (Step step = its.first_step[walked]; step < its.first_step[walked + 1]; ++step) {
      const Step here = offsets.back() + step;
      if (at(rank).waits[static_cast<size_t>(here)] == 0) order(rank, first, here);
      for (const int32_t follower : its.followers_of(step)) {
        at(rank).edges.emplace_back(here, offsets.back() + follower);
      }
      if (its.followers_of(step).empty()) order(rank, here, last);
    }
    if (first + 1 == last) order(rank, first, last);
    ends.emplace_back(first, last);
  }
  for (int32_t walked = 0; walked < its.walked(); ++walked) {
    Rank& sender = at(rank_of(walked * its.alike));
    const auto offset = [&](int32_t member) { return offsets[size_t(member)]; };
    for (Step step = its.first_step[walked]; step < its.first_step[walked + 1]; ++step) {
      for (const Schedule::Message& message : its.messages_of(step)) {
        const Step received = offset(message.to / its.alike) + message.step;
        sender.messages.push_back({offset(walked) + step, rank_of(message.to), received});
        ++at(rank_of(message.to)).waits[static_cast<size_t>(received)];
      }
    }
  }
  return ends;
}

// Adds one rank's steps of a collective. `waits` counts only dependencies on steps of the same rank
// here; collective() counts the messages.
void JointSchedule::add_program(const Schedule& its, int32_t walked, double chunk_bytes,
                                int32_t rank) {
  for (Step step = its.first_step[walked]; step < its.first_step[walked + 1]; ++step) {
    const StepKind kind = its.kinds[step];
    const Step here = add(rank, kind, its.chunks[step] * chunk_bytes);
    const bool receives = tutti::receives(kind);
    at(rank).waits[static_cast<size_t>(here)] = its.waits[step] - (receives ? 1 : 0);
  }
}

void JointSchedule::append(Rank& rank, int32_t number, Schedule& all) const {
  const Step offset = all.first_step[number];
  const auto join = [](auto& to, const auto& more) {
    to.insert(to.end(), more.begin(), more.end());
  };
  join(all.kinds, rank.kinds);
  join(all.bytes, rank.bytes);
  join(all.compute_us, rank.compute_us);
  join(all.waits, rank.waits);
  std::ranges::sort(rank.edges);
  auto edge = rank.edges.begin();
  auto message = rank.messages.begin();
  for (Step step = 0; step < static_cast<Step>(rank.kinds.size()); ++step) {
    for (; edge != rank.edges.end() && edge->first == step; ++edge) {
      all.followers.push_back(offset + edge->second);
    }
    for (; message != rank.messages.end() && message->sender == step; ++message) {
      const int32_t receiver = message->to / alike_;
      all.messages.push_back(
          {number * alike_, message->to, all.first_step[receiver] + message->receiver, 0});
    }
    all.first_follower.push_back(static_cast<int32_t>(all.followers.size()));
    all.first_message.push_back(static_cast<int32_t>(all.messages.size()));
  }
}

Schedule JointSchedule::take() {
  Schedule all;
  all.ranks = static_cast<int32_t>(ranks_.size()) * alike_;
  all.alike = alike_;
  all.symmetry = symmetry_;
  all.connections = 1;
  for (const Rank& rank : ranks_) {
    all.first_step.push_back(all.first_step.back() + static_cast<Step>(rank.kinds.size()));
  }
  for (int32_t number = 0; number < all.walked(); ++number) {
    append(ranks_[static_cast<size_t>(number)], number, all);
    ranks_[static_cast<size_t>(number)] = {};
  }
  return all;
}

}  // namespace tutti
