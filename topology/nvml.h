// NVLinks of this host, as NVIDIA's management library tells them. The library comes with the
// driver; it is opened when it is asked, and nothing of it is needed for building.
#pragma once

#include <string>
#include <vector>

namespace tutti {

enum class NvmlPeer { gpu, nvlink_switch, other };

struct NvmlLink {
  NvmlPeer peer = NvmlPeer::gpu;  // `other` stays inside of the probing
  std::string bus;                // of a GPU at the other end, as in NvmlGpu
  int count = 0;                  // of links to it
};

struct NvmlGpu {
  std::string bus;             // PCI address, in lower case: "0000:06:00.0"
  int compute_capability = 0;  // 90 for 9.0
  std::vector<NvmlLink> links;
};

// In the library's order. None where there is no library, no driver or no GPU.
std::vector<NvmlGpu> probe_nvml(const std::string& library = "libnvidia-ml.so.1");

}  // namespace tutti
