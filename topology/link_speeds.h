// What links of a kind carry, in 1e9 bytes per second and direction, as can be had rather than as
// is printed on the box. The numbers are NCCL's (src/graph/topo.h) and RCCL's, which were measured.
#pragma once

#include <string>
#include <string_view>

#include "topology/graph.h"

namespace tutti {

// Of PCI Express: `gigatransfers` a second and lane (2.5, 5, 8, 16, 32, 64).
constexpr double pci_GBps(double gigatransfers, double lanes) {
  return gigatransfers * lanes * 0.09375;  // 8 GT/s over 16 lanes: 12 of 15.75
}
inline constexpr double kUnknownPciGBps = pci_GBps(8, 16);

// Of one NVLink of a GPU of this compute capability (70, 80, ...); of one xGMI link of an AMD GPU
// ("906", "910", "gfx942").
double nvlink_GBps(int compute_capability);
double xgmi_GBps(std::string_view gcn);
// The NVLinks that such a GPU has.
int nvlink_ports(int compute_capability);
// Of the slot that such a GPU is made for, where the file or the system does not tell.
double gpu_slot_GBps(int compute_capability);

// Between two packages, or NUMA nodes, of a processor as CPUID and NCCL's files name it:
// "x86_64", "GenuineIntel", 6, 85.
struct Processor {
  std::string arch;
  std::string vendor;
  int family = 0;
  int model = 0;
};
double between_packages_GBps(const Processor& processor);

// Of one hop over such a link.
double usual_latency_us(LinkClass kind);

}  // namespace tutti
