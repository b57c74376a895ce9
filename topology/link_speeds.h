// Achievable bandwidth of each kind of link, per direction and in 1e9 bytes per second. These are
// measured values, below the nominal ones, from NCCL (src/graph/topo.h) and RCCL.
#pragma once

#include <string>
#include <string_view>

#include "topology/graph.h"

namespace tutti {

// Returns the bandwidth of PCI Express at `gigatransfers` per second and lane (2.5, 5, 8, 16, 32,
// 64).
constexpr double pci_GBps(double gigatransfers, double lanes) {
  return gigatransfers * lanes * 0.09375;  // 8 GT/s over 16 lanes: 12 of the nominal 15.75 GB/s
}
inline constexpr double kUnknownPciGBps = pci_GBps(8, 16);

// Returns the bandwidth of one NVLink of a GPU of this compute capability (70, 80, ...), or of one
// xGMI link of an AMD GPU ("906", "910", "gfx942").
double nvlink_GBps(int compute_capability);
double xgmi_GBps(std::string_view gcn);
// Returns the number of NVLinks of a GPU of this compute capability.
int nvlink_ports(int compute_capability);
// Returns the bandwidth of the PCI slot of a GPU of this compute capability. It is used if neither
// the file nor the system states the bandwidth.
double gpu_slot_GBps(int compute_capability);

// A processor as CPUID and NCCL's files name it: "x86_64", "GenuineIntel", 6, 85. Its model
// determines the bandwidth between two packages or NUMA nodes.
struct Processor {
  std::string arch;
  std::string vendor;
  int family = 0;
  int model = 0;
};
double between_packages_GBps(const Processor& processor);

// Returns the latency of one hop over a link of this class.
double usual_latency_us(LinkClass kind);

}  // namespace tutti
