// Replaces NVIDIA's management library on a host with four GPUs. GPUs 0 and 1 are connected by two
// links, and so are 2 and 3. Each GPU also has one link to a switch. For GPUs 0 and 1, the switch
// is reported by its type; for 2 and 3, as by older drivers, by an address that is not that of a
// GPU.
#include <cstdio>
#include <cstring>

extern "C" {

struct nvmlPciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_sub_system_id;
  char bus_id[32];
};
using Device = const unsigned*;
static const unsigned kIndices[] = {0, 1, 2, 3};

static int pci_of(unsigned bus, nvmlPciInfo* pci) {
  std::memset(pci, 0, sizeof *pci);
  std::snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:%02X:00.0", bus);
  return 0;
}

int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
int nvmlDeviceGetCount_v2(unsigned* count) { return (*count = 4, 0); }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device* device) {
  return (*device = &kIndices[index], 0);
}
int nvmlDeviceGetPciInfo_v3(Device device, nvmlPciInfo* pci) { return pci_of(0x1a + *device, pci); }
int nvmlDeviceGetCudaComputeCapability(Device, int* major, int* minor) {
  return (*major = 9, *minor = 0, 0);
}
int nvmlDeviceGetNvLinkState(Device, unsigned link, int* is_active) {
  if (link >= 18) return 2;  // invalid argument
  return (*is_active = link < 3 ? 1 : 0, 0);
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(Device device, unsigned link, nvmlPciInfo* pci) {
  return pci_of(link < 2 ? 0x1a + (*device ^ 1) : 0xc4, pci);
}
int nvmlDeviceGetNvLinkRemoteDeviceType(Device device, unsigned link, int* type) {
  if (*device >= 2) return 3;  // not supported
  return (*type = link < 2 ? 0 : 2, 0);
}

}  // extern "C"
