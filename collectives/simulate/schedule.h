// The programs of all ranks as one graph of steps: what follows what, and which message goes where.
// It knows nothing of bytes and time, so one schedule serves all sizes.
//
// Ranks that do the same at the same time may be walked as one. Where hosts are alike, and on each
// of them rank i does what rank 0 does with all partners shifted by i, a schedule holds rank 0 of
// each host only, and a message of it stands for those of all ranks of the host.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "collectives/program/algorithm.h"

namespace tutti {

// How partners are shifted: to (position + i) mod size, or to position xor i.
enum class Symmetry : uint8_t { none, rotation, exclusive_or };

struct Schedule {
  struct Message {
    int32_t from = 0;  // ranks
    int32_t to = 0;
    int32_t step = 0;        // that receives it
    int32_t connection = 0;  // equal for those from one rank to another
  };

  int32_t ranks = 0;
  Symmetry symmetry = Symmetry::none;
  int32_t alike = 1;  // ranks that are walked as one: those of a host
  // Steps of the ranks that are walked: rank 0's first, then rank `alike`'s, and so on.
  std::vector<int32_t> first_step;  // by rank that is walked, and the end
  std::vector<StepKind> kinds;      // by step
  std::vector<int32_t> chunks;      // by step: what it sends, receives or computes
  // Of a schedule that is made of several (joint_schedule.h), by step, and else empty: bytes in
  // place of chunks, and for how long it keeps its rank's processor busy besides.
  std::vector<double> bytes;
  std::vector<double> compute_us;
  std::vector<int32_t> waits;  // by step: for so many steps and messages
  std::vector<int32_t> first_follower;
  std::vector<int32_t> followers;  // steps of the same rank that wait for this one
  std::vector<int32_t> first_message;
  std::vector<Message> messages;
  int32_t connections = 0;
  int32_t buffer_chunks = 1;  // of the larger of the two buffers

  int32_t steps() const { return static_cast<int32_t>(kinds.size()); }
  int32_t walked() const { return static_cast<int32_t>(first_step.size()) - 1; }
  int32_t rank_of(int32_t step) const;
  int64_t messages_in_all() const { return static_cast<int64_t>(messages.size()) * alike; }
  std::span<const int32_t> followers_of(int32_t step) const {
    return {followers.data() + first_follower[step], followers.data() + first_follower[step + 1]};
  }
  std::span<const Message> messages_of(int32_t step) const {
    return {messages.data() + first_message[step], messages.data() + first_message[step + 1]};
  }
  // The i-th of those that a rank stands for.
  int32_t image(int32_t rank, int32_t i) const;
};

// Called now and then with what part is done, from 0 to 1.
using Progress = std::function<void(double)>;

struct ScheduleOptions {
  // Steps over all ranks; more are refused.
  int64_t most_steps = 40'000'000;
  // Ranks of a host: tried as one. 1: each rank is walked.
  int32_t alike = 1;
  Progress progress = {};
};

// Throws Error(unsupported) for what the algorithm does not support, or is too long;
// Error(internal) where messages do not match.
Schedule make_schedule(const Algorithm& algorithm, const Shape& shape,
                       const ScheduleOptions& options = {});

// Of the larger of the two buffers.
int32_t buffer_chunks(Collective collective, const Program& program, int32_t ranks);

// Which symmetry the programs of these ranks of some hosts have: all of the first, the second, the
// middle and the last hosts are compared, step by step. none: they are not alike.
Symmetry find_symmetry(const Algorithm& algorithm, const Shape& shape, int32_t alike);

}  // namespace tutti
