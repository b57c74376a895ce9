// NVLinks of this host, as NVIDIA's management library (NVML) reports them. The library is part of
// the driver and is opened at run time, so building does not need it.
#pragma once

#include <string>
#include <vector>

namespace tutti {

enum class NvmlPeer { gpu, nvlink_switch, other };

struct NvmlLink {
  NvmlPeer peer = NvmlPeer::gpu;  // kind of the other end; probe_nvml() never returns `other`
  std::string bus;                // PCI address of the GPU at the other end, as in NvmlGpu
  int count = 0;                  // number of links to it
};

struct NvmlGpu {
  std::string bus;             // lower-case PCI address, "0000:06:00.0"
  int compute_capability = 0;  // 90 for 9.0
  std::vector<NvmlLink> links;
};

// Returns the GPUs in the library's order. Returns none if there is no library, driver or GPU.
std::vector<NvmlGpu> probe_nvml(const std::string& library = "libnvidia-ml.so.1");

}  // namespace tutti
