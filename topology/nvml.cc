#include "topology/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <utility>

#include "topology/bus_address.h"

namespace tutti {
namespace {

// The part of nvml.h that is used (its ABI is stable).
using Device = void*;
constexpr int kSuccess = 0;
constexpr unsigned kMostLinks = 36;
// nvmlIntNvLinkDeviceType_t
constexpr int kGpu = 0;
constexpr int kSwitch = 2;

struct PciInfo {  // as nvmlPciInfo_t
  char bus_id_legacy[16];
  unsigned domain;
  unsigned bus;
  unsigned device;
  unsigned pci_device_id;
  unsigned pci_sub_system_id;
  char bus_id[32];
};

class Library {
 public:
  explicit Library(const std::string& name)
      : handle_(::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    is_ready_ = handle_ != nullptr && find(init, "nvmlInit_v2") && find(shutdown, "nvmlShutdown") &&
                find(count, "nvmlDeviceGetCount_v2") &&
                find(by_index, "nvmlDeviceGetHandleByIndex_v2") &&
                find(pci, "nvmlDeviceGetPciInfo_v3") &&
                find(capability, "nvmlDeviceGetCudaComputeCapability") &&
                find(link_state, "nvmlDeviceGetNvLinkState") &&
                find(link_pci, "nvmlDeviceGetNvLinkRemotePciInfo_v2") && init() == kSuccess;
    // Exists in newer drivers only.
    if (is_ready_) find(link_type, "nvmlDeviceGetNvLinkRemoteDeviceType");
  }
  ~Library() {
    if (is_ready_) shutdown();
    if (handle_ != nullptr) ::dlclose(handle_);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  bool is_ready() const { return is_ready_; }

  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*by_index)(unsigned, Device*) = nullptr;
  int (*pci)(Device, PciInfo*) = nullptr;
  int (*capability)(Device, int* major, int* minor) = nullptr;
  int (*link_state)(Device, unsigned link, int* is_active) = nullptr;
  int (*link_pci)(Device, unsigned link, PciInfo*) = nullptr;
  int (*link_type)(Device, unsigned link, int* type) = nullptr;

 private:
  template <typename Function>
  bool find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(::dlsym(handle_, name));
    return function != nullptr;
  }

  void* handle_;
  bool is_ready_ = false;
};

std::string bus_of(const PciInfo& pci) {
  const char* const end = std::find(pci.bus_id, pci.bus_id + sizeof pci.bus_id, '\0');
  return bus_address({pci.bus_id, end});
}

NvmlGpu gpu_of(const Library& nvml, Device device, const PciInfo& pci) {
  NvmlGpu gpu{.bus = bus_of(pci)};
  int major = 0;
  int minor = 0;
  if (nvml.capability(device, &major, &minor) == kSuccess) {
    gpu.compute_capability = 10 * major + minor;
  }
  std::map<std::pair<NvmlPeer, std::string>, int> count;
  for (unsigned link = 0; link < kMostLinks; ++link) {
    int is_active = 0;
    if (nvml.link_state(device, link, &is_active) != kSuccess || is_active == 0) continue;
    int type = 0;
    const bool is_reported =
        nvml.link_type != nullptr && nvml.link_type(device, link, &type) == kSuccess;
    PciInfo peer{};
    if (is_reported && type == kSwitch) {
      ++count[{NvmlPeer::nvlink_switch, ""}];
    } else if ((!is_reported || type == kGpu) && nvml.link_pci(device, link, &peer) == kSuccess) {
      ++count[{is_reported ? NvmlPeer::gpu : NvmlPeer::other, bus_of(peer)}];
    }
  }
  for (const auto& [peer, links] : count) gpu.links.push_back({peer.first, peer.second, links});
  return gpu;
}

}  // namespace

std::vector<NvmlGpu> probe_nvml(const std::string& library) {
  const Library nvml(library);
  std::vector<NvmlGpu> gpus;
  unsigned count = 0;
  if (!nvml.is_ready() || nvml.count(&count) != kSuccess) return gpus;
  for (unsigned i = 0; i < count; ++i) {
    Device device = nullptr;
    PciInfo pci{};
    if (nvml.by_index(i, &device) == kSuccess && nvml.pci(device, &pci) == kSuccess) {
      gpus.push_back(gpu_of(nvml, device, pci));
    }
  }
  // Older drivers report only an address. An address that no GPU has belongs to a switch.
  for (NvmlGpu& gpu : gpus) {
    for (NvmlLink& link : gpu.links) {
      if (link.peer != NvmlPeer::other) continue;
      const bool is_gpu = std::ranges::find(gpus, link.bus, &NvmlGpu::bus) != gpus.end();
      link.peer = is_gpu ? NvmlPeer::gpu : NvmlPeer::nvlink_switch;
    }
  }
  return gpus;
}

}  // namespace tutti
