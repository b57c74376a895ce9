// All ranks' steps in virtual time: each rank does its steps one after the other, each as soon as
// the steps that it needs are done and its message is there; ranks beyond a host's cores take
// turns, and so do the messages that leave or enter a host. Knows nothing of bytes: cost.h says how
// long the steps take.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "collectives/program/plan.h"
#include "topology/domain.h"

namespace tutti {

// In seconds.
struct Timing {
  // By slice, then by step: rank 0's, then rank 1's, and so on.
  std::vector<std::vector<double>> steps;
  // The same, of sends: for how long each message that goes to another host is on the wire. It
  // takes that time of what its host sends, and of what the other one receives.
  std::vector<std::vector<double>> wires;
  double near_latency = 0;  // from the end of a send until its reader sees it, on one host
  double far_latency = 0;   // and between hosts
  double switch_time = 0;   // for a core to change over to another rank
  const Hosts* hosts = nullptr;
  // Each pair of hosts has a wire of its own, not each host one for all.
  bool wire_for_each_pair = false;
  int32_t cores = 1;  // of each host
  // A rank begins a slice when it has done all of the one before, as blocks of a kernel do.
  bool slices_in_turn = false;

  // A wire's number, by where a message goes, and how many there are.
  size_t wire_of(int32_t host, int32_t other) const {
    const auto own = static_cast<size_t>(host);
    return wire_for_each_pair
               ? own * static_cast<size_t>(hosts->count()) + static_cast<size_t>(other)
               : own;
  }
  size_t all_wires() const {
    const auto count = static_cast<size_t>(hosts->count());
    return wire_for_each_pair ? count * count : count;
  }

  int32_t cores_used() const { return std::clamp(cores, 1, std::max(1, hosts->largest())); }
  // Ranks of a host take its cores in turn.
  int32_t core_of(int32_t rank) const {
    return hosts->host_of(rank) * cores_used() + hosts->position_of(rank) % cores_used();
  }
  size_t all_cores() const { return static_cast<size_t>(hosts->count()) * cores_used(); }
};

// When each slice is done. Empty if that is after `give_up`.
std::vector<double> walk(std::span<const Plan> plans, const Timing& timing,
                         double give_up = std::numeric_limits<double>::infinity());

}  // namespace tutti
