#include "base/cuda/memory.h"

#include "base/cuda/api.h"

namespace tutti::cuda {

DeviceMemory::DeviceMemory(const Context& context, size_t bytes) : size_(bytes) {
  const CurrentContext current(context);
  CUdeviceptr allocated = 0;
  api().mem_alloc(&allocated, bytes);
  free_ = freed_in(context, [allocated] { api().mem_free.result(allocated); });
  data_ = pointer(allocated);
}

PinnedMemory::PinnedMemory(const Context& context, size_t bytes) : size_(bytes) {
  const CurrentContext current(context);
  void* allocated = nullptr;
  api().mem_host_alloc(&allocated, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
  free_ = freed_in(context, [allocated] { api().mem_free_host.result(allocated); });
  data_ = static_cast<std::byte*>(allocated);
  CUdeviceptr on_device = 0;
  api().mem_host_get_device_pointer(&on_device, allocated, 0);
  device_data_ = pointer(on_device);
}

PointerInfo describe(const void* pointer) {
  unsigned type = 0;
  unsigned is_managed = 0;
  int device = -1;
  CUcontext context = nullptr;
  CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                 CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_CONTEXT};
  void* values[] = {&type, &is_managed, &device, &context};
  api().pointer_get_attributes(std::size(which), which, values, address(pointer));
  if (is_managed != 0) return {MemoryKind::managed, device, context};
  if (type == CU_MEMORYTYPE_DEVICE) return {MemoryKind::device, device, context};
  if (type == CU_MEMORYTYPE_HOST) return {MemoryKind::pinned, device, context};
  return {};
}

Allocation allocation_of(const void* device_pointer) {
  CUdeviceptr base = 0;
  size_t size = 0;
  api().mem_get_address_range(&base, &size, address(device_pointer));
  return {pointer(base), size};
}

void copy_async(void* to, const void* from, size_t bytes, CUstream stream) {
  if (bytes > 0) api().memcpy_async(address(to), address(from), bytes, stream);
}

void fill_async(void* to, std::byte value, size_t bytes, CUstream stream) {
  if (bytes > 0)
    api().memset_d8_async(address(to), static_cast<unsigned char>(value), bytes, stream);
}

}  // namespace tutti::cuda
