// NVLink and xGMI as the GPUs of a file tell them: each end tells of the same links.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <utility>

#include "topology/graph.h"

namespace tutti {

class FastLinks {
 public:
  // Several to one end add up: as many as there are NVLink switches.
  void add(int gpu, int other, LinkClass kind, int count, double GBps_of_each);
  // Whether either end tells of one.
  bool has(int gpu) const;
  int links_of(int gpu) const;
  // GPUs that tell of more links than they have ports reach all others by all of them: over a
  // switch.
  struct Switched {
    int gpu = 0;
    int ports = 0;
    double GBps_of_each = 0;
    int nvlink_switch = 0;
  };
  void take_for_switched(std::span<const Switched> gpus);
  // Into the graph.
  void connect(const std::function<void(int a, int b, LinkClass kind, double GBps)>& link) const;

 private:
  struct Told {
    LinkClass kind = LinkClass::nvlink;
    int count = 0;
    double GBps = 0;
  };
  std::map<std::pair<int, int>, Told> told_;  // by the GPU that tells, and the other end
};

}  // namespace tutti
