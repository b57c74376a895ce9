#include "base/cuda/device.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <utility>

#include "base/cuda/api.h"
#include "base/error.h"
#include "base/text.h"

namespace tutti::cuda {
namespace {

CUdevice device_of(int ordinal) {
  const int count = device_count();
  if (ordinal < 0 || ordinal >= count) {
    throw Error(ErrorCode::invalid_argument,
                cat("GPU ", ordinal, " does not exist: this process sees ", count),
                {.cause = "CUDA_VISIBLE_DEVICES or the container exposes fewer GPUs than expected",
                 .remedy = "number GPUs from 0 in the order of CUDA_VISIBLE_DEVICES"});
  }
  CUdevice device = 0;
  api().device_get(&device, ordinal);
  return device;
}

int attribute(CUdevice device, CUdevice_attribute which) {
  int value = 0;
  api().device_get_attribute(&value, which, device);
  return value;
}

// Returns true if the device has the attribute. Older drivers return an error for newer attributes.
bool has(CUdevice device, CUdevice_attribute which) {
  int value = 0;
  return api().device_get_attribute.result(&value, which, device) == CUDA_SUCCESS && value != 0;
}

std::string pci_bus_id(CUdevice device) {
  char text[32] = {};
  api().device_get_pci_bus_id(text, sizeof text, device);
  std::string id = text;
  std::ranges::transform(id, id.begin(), [](unsigned char c) { return std::tolower(c); });
  return id;
}

}  // namespace

int device_count() {
  int count = 0;
  api().device_get_count(&count);
  return count;
}

DeviceInfo device_info(int ordinal) {
  const CUdevice device = device_of(ordinal);
  char name[256] = {};
  api().device_get_name(name, sizeof name, device);
  CUuuid uuid = {};
  api().device_get_uuid(&uuid, device);
  size_t memory = 0;
  api().device_total_mem(&memory, device);
  DeviceInfo info{.ordinal = ordinal,
                  .name = name,
                  .pci_bus_id = pci_bus_id(device),
                  .uuid = std::bit_cast<Uuid>(uuid),
                  .memory_bytes = memory};
  info.compute_capability = 10 * attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
                            attribute(device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  info.multiprocessors = attribute(device, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  info.most_shared_bytes =
      static_cast<size_t>(attribute(device, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN));
  // The driver reports MIG only in the name: "NVIDIA A100-SXM4-40GB MIG 1g.5gb".
  info.is_mig = info.name.find(" MIG ") != std::string::npos;
  info.has_virtual_memory = has(device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
  info.has_file_descriptors =
      has(device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
  info.has_fabric_handles = has(device, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED);
  info.has_multicast = has(device, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED);
  return info;
}

int current_device() {
  CUcontext current = nullptr;
  api().ctx_get_current(&current);
  if (current == nullptr) return 0;
  CUdevice device = 0;
  api().ctx_get_device(&device);
  for (int ordinal = 0; ordinal < device_count(); ++ordinal) {
    CUdevice other = 0;
    api().device_get(&other, ordinal);
    if (other == device) return ordinal;
  }
  return 0;
}

bool can_access_peer(int device, int peer) {
  if (device == peer) return true;
  int can = 0;
  api().device_can_access_peer(&can, device_of(device), device_of(peer));
  return can != 0;
}

Context::Retained::Retained(int number) : ordinal(number), device(device_of(number)) {
  api().primary_retain(&handle, device);
}

Context::Retained::~Retained() { api().primary_release.result(device); }

Context::Context(int ordinal) : retained_(std::make_shared<const Retained>(ordinal)) {}

CurrentContext::CurrentContext(CUcontext context) { api().ctx_push_current(context); }

CurrentContext::~CurrentContext() {
  CUcontext popped = nullptr;
  api().ctx_pop_current.result(&popped);
}

Cleanup freed_in(const Context& context, std::function<void()> free) {
  return Cleanup([context, free = std::move(free)] {
    if (api().ctx_push_current.result(context.handle()) != CUDA_SUCCESS) return;
    free();
    CUcontext popped = nullptr;
    api().ctx_pop_current.result(&popped);
  });
}

void synchronize(const Context& context) {
  const CurrentContext current(context);
  api().ctx_synchronize();
}

}  // namespace tutti::cuda
