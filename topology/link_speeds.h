// Achievable bandwidth of each kind of link, per direction and in 1e9 bytes per second (not the
// nominal one). The numbers are measured ones, from NCCL (src/graph/topo.h) and RCCL.
#pragma once

#include <string>
#include <string_view>

#include "topology/graph.h"

namespace tutti {

// PCI Express at `gigatransfers` per second and lane (2.5, 5, 8, 16, 32, 64).
constexpr double pci_GBps(double gigatransfers, double lanes) {
  return gigatransfers * lanes * 0.09375;  // 8 GT/s over 16 lanes: 12 of 15.75
}
inline constexpr double kUnknownPciGBps = pci_GBps(8, 16);

// One NVLink of a GPU of this compute capability (70, 80, ...); one xGMI link of an AMD GPU ("906",
// "910", "gfx942").
double nvlink_GBps(int compute_capability);
double xgmi_GBps(std::string_view gcn);
// Number of NVLinks of such a GPU.
int nvlink_ports(int compute_capability);
// Bandwidth of such a GPU's slot, used if neither file nor system states it.
double gpu_slot_GBps(int compute_capability);

// Bandwidth between two packages, or NUMA nodes, of a processor as CPUID and NCCL's files name it:
// "x86_64", "GenuineIntel", 6, 85.
struct Processor {
  std::string arch;
  std::string vendor;
  int family = 0;
  int model = 0;
};
double between_packages_GBps(const Processor& processor);

// Latency of one hop over such a link.
double usual_latency_us(LinkClass kind);

}  // namespace tutti
