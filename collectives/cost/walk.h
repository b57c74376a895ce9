// Walks all ranks' steps in virtual time. Each rank runs its steps one after another, each as soon
// as its predecessors are done and its message has arrived. If a host has more ranks than cores,
// its ranks take turns on the cores; the messages that leave or enter a host take turns on its
// wire. cost.h supplies the durations, so the walk does not need the number of bytes.
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

// Durations, in seconds.
struct Timing {
  // Durations by slice, then by step: the steps of rank 0, then the steps of rank 1, and so on.
  std::vector<std::vector<double>> steps;
  // Indexed like `steps`, for sends: the time on the wire of a message to another host, which
  // occupies the outgoing wire of its host and the incoming wire of the other.
  std::vector<std::vector<double>> wires;
  double near_latency = 0;  // from the end of a send to its receipt, within a host
  double far_latency = 0;   // from the end of a send to its receipt, between hosts
  double switch_time = 0;   // for a core to switch to another rank
  const Hosts* hosts = nullptr;
  // True: each pair of hosts has a wire of its own. False: each host has one wire.
  bool wire_for_each_pair = false;
  int32_t cores = 1;  // number of cores per host
  // True if a rank starts a slice only when it has finished the slice before, as blocks of a kernel
  // do.
  bool slices_in_turn = false;

  // Returns the index of the wire for messages from `host` to `other`; all_wires() returns the
  // number of wires.
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
  // Returns the core of a rank; the ranks of a host are assigned to its cores round-robin.
  int32_t core_of(int32_t rank) const {
    return hosts->host_of(rank) * cores_used() + hosts->position_of(rank) % cores_used();
  }
  size_t all_cores() const { return static_cast<size_t>(hosts->count()) * cores_used(); }
};

// Returns the completion time of each slice; empty if the last time exceeds `give_up`.
std::vector<double> walk(std::span<const Plan> plans, const Timing& timing,
                         double give_up = std::numeric_limits<double>::infinity());

}  // namespace tutti
