// NVLink and xGMI links as the GPUs of a topology file declare them. Usually both ends declare the
// same links.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <utility>

#include "topology/graph.h"

namespace tutti {

class FastLinks {
 public:
  // Adds what one GPU declares. Several declarations with the same other end add up, one per NVLink
  // switch.
  void add(int gpu, int other, LinkClass kind, int count, double GBps_of_each);
  // Returns true if either end declares a link.
  bool has(int gpu) const;
  int links_of(int gpu) const;
  // A GPU that declares more links than it has ports, because it is attached to a switch. It
  // reaches all other GPUs of the switch with the bandwidth of all of its ports.
  struct Switched {
    int gpu = 0;
    int ports = 0;
    double GBps_of_each = 0;
    int nvlink_switch = 0;
  };
  // Replaces all declared links of these GPUs by links to their switches.
  void take_for_switched(std::span<const Switched> gpus);
  // Adds the links to the graph.
  void connect(const std::function<void(int a, int b, LinkClass kind, double GBps)>& link) const;

 private:
  struct Declared {
    LinkClass kind = LinkClass::nvlink;
    int count = 0;
    double GBps = 0;
  };
  std::map<std::pair<int, int>, Declared> declared_;  // by declaring GPU and other end
};

}  // namespace tutti
