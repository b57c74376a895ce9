#include "topology/link_speeds.h"

namespace tutti {

double nvlink_GBps(int compute_capability) {
  if (compute_capability >= 100) return 40.1;
  if (compute_capability >= 90) return 20.6;
  if (compute_capability == 86) return 12;
  if (compute_capability >= 80) return 20;
  // NCCL used 22 up to version 2.12, and 20 since. An all-reduce over the six links of a V100
  // reaches 130.
  if (compute_capability >= 70) return 22;
  return 18;
}

double xgmi_GBps(std::string_view gcn) {
  for (const std::string_view of_48 : {"gfx94", "94", "gfx95", "95"}) {
    if (gcn.starts_with(of_48)) return 48;
  }
  if (gcn == "910" || gcn == "gfx90a") return 36;
  return 24;
}

int nvlink_ports(int compute_capability) {
  if (compute_capability == 86) return 4;
  if (compute_capability >= 90 || compute_capability <= 0) return 18;
  if (compute_capability >= 80) return 12;
  return compute_capability >= 70 ? 6 : 4;
}

double gpu_slot_GBps(int compute_capability) {
  if (compute_capability >= 90) return pci_GBps(32, 16);
  if (compute_capability >= 80) return pci_GBps(16, 16);
  return kUnknownPciGBps;
}

double between_packages_GBps(const Processor& processor) {
  if (processor.arch == "ppc64") return 32;
  if (processor.arch == "arm64") return 6;
  if (processor.vendor == "AuthenticAMD") return 16;
  if (processor.vendor == "GenuineIntel" && processor.family == 6) {
    if (processor.model >= 207) return 40;  // Emerald Rapids
    if (processor.model >= 143) return 22;  // Sapphire Rapids
    if (processor.model >= 85) return 10;   // Skylake
  }
  return 6;
}

double usual_latency_us(LinkClass kind) {
  switch (kind) {
    case LinkClass::nvlink:
    case LinkClass::xgmi:
    case LinkClass::c2c:
    case LinkClass::system:
      return 0.5;
    case LinkClass::pci:
      return 0.3;
    case LinkClass::memory:
      return 0.1;
    case LinkClass::network:
      return 1;
  }
  return 1;
}

}  // namespace tutti
