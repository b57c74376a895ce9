// Implements multicast objects. An address in one has no memory of its own and cannot be accessed;
// device code asks for the members' addresses.
#include <algorithm>
#include <atomic>
#include <bit>
#include <vector>

#include "tests/support/fake_cuda/state.h"
#include "tests/support/multicast_members.h"

namespace fake_cuda {
namespace {

constexpr unsigned kMostDevices = 64;

std::atomic<size_t> multicast_uses{0};

bool is_aligned(size_t value) { return value % kMulticastGranularity == 0; }

CUresult check_properties(const CUmulticastObjectProp& properties) {
  if (properties.numDevices == 0 || properties.numDevices > kMostDevices || properties.flags != 0 ||
      properties.size == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const bool is_known = handle_types_are_known(properties.handleTypes);
  return setting("FAKE_CUDA_MULTICAST", 1) != 0 && is_known ? CUDA_SUCCESS
                                                            : CUDA_ERROR_NOT_SUPPORTED;
}

Physical* find_multicast(CUmemGenericAllocationHandle handle) {
  Physical* const found = find_physical(handle);
  return found != nullptr && found->is_multicast() ? found : nullptr;
}

CUresult add_device(PhysicalHeader& header, CUdevice device) {
  const uint64_t bit = uint64_t{1} << device;
  uint64_t added = header.added.load();
  do {
    if ((added & bit) != 0 || std::popcount(added) == static_cast<int>(header.team)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  } while (!header.added.compare_exchange_weak(added, added | bit));
  return CUDA_SUCCESS;
}

CUresult bind_memory(Physical& object, size_t offset, const std::shared_ptr<Physical>& memory,
                     size_t memory_offset, size_t size) {
  const PhysicalHeader& header = object.header();
  if (!is_aligned(offset) || !is_aligned(memory_offset) || !is_aligned(size) || size == 0 ||
      offset + size > header.size || memory_offset + size > memory->header().size ||
      memory->is_multicast()) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (header.handle_types != 0 && memory->header().handle_types == 0) {
    return CUDA_ERROR_INVALID_VALUE;  // a shareable object accepts only shareable memory
  }
  // A real driver waits for the missing devices.
  if (!object.has_whole_team()) return CUDA_ERROR_ILLEGAL_STATE;
  const int device = memory->header().device;
  if ((header.added.load() >> device & 1) == 0) return CUDA_ERROR_INVALID_DEVICE;
  return object.bind(offset, memory, memory_offset, size);
}

// Returns the file's existing mapping for a device in this process.
std::byte* mapped_here(ino_t inode) {
  for (const auto& [base, range] : state().memory) {
    if (range.kind == Range::Kind::mapped && !range.accessible.empty() &&
        !range.physical->is_multicast() && range.physical->place().inode == inode) {
      return reinterpret_cast<std::byte*>(base);
    }
  }
  return nullptr;
}

struct Member {
  int device;
  std::byte* at;
};

std::vector<Member> members_at(Physical& object, size_t offset, size_t bytes) {
  std::vector<Member> members;
  for (const Binding& binding : object.header().bindings) {
    if (binding.is_valid.load(std::memory_order_acquire) == 0 || offset < binding.offset ||
        offset + bytes > binding.offset + binding.size) {
      continue;
    }
    std::byte* memory = mapped_here(binding.memory.inode);
    if (memory == nullptr) memory = object.member(binding);
    if (memory == nullptr) return {};
    members.push_back({binding.device, memory + binding.memory_offset + (offset - binding.offset)});
  }
  if (members.size() != object.header().team) return {};
  std::ranges::sort(members, {}, &Member::device);
  return members;
}

}  // namespace
}  // namespace fake_cuda

using namespace fake_cuda;  // NOLINT

extern "C" {

CUresult cuMulticastGetGranularity(size_t* granularity, const CUmulticastObjectProp* properties,
                                   CUmulticastGranularity_flags) {
  return initialized([&] {
    *granularity = kMulticastGranularity;
    return check_properties(*properties);
  });
}

CUresult cuMulticastCreate(CUmemGenericAllocationHandle* handle,
                           const CUmulticastObjectProp* properties) {
  return initialized([&] {
    const CUresult result = check_properties(*properties);
    if (result != CUDA_SUCCESS) return result;
    if (!is_aligned(properties->size)) return CUDA_ERROR_INVALID_VALUE;
    const auto types = static_cast<uint32_t>(properties->handleTypes);
    if ((types & CU_MEM_HANDLE_TYPE_FABRIC) != 0 && setting("FAKE_CUDA_FABRIC", 0) == 2) {
      return CUDA_ERROR_NOT_PERMITTED;
    }
    auto physical = Physical::make(0, properties->size, types, properties->numDevices);
    if (physical == nullptr) return CUDA_ERROR_OPERATING_SYSTEM;
    *handle = add_handle(std::move(physical), false);
    return CUDA_SUCCESS;
  });
}

CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle handle, CUdevice device) {
  return initialized([&] {
    Physical* const object = find_multicast(handle);
    if (object == nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (device < 0 || device >= static_cast<int>(state().contexts.size())) {
      return CUDA_ERROR_INVALID_DEVICE;
    }
    return add_device(object->header(), device);
  });
}

CUresult cuMulticastBindMem(CUmemGenericAllocationHandle handle, size_t offset,
                            CUmemGenericAllocationHandle memory, size_t memory_offset, size_t size,
                            unsigned long long flags) {
  return initialized([&] {
    Physical* const object = find_multicast(handle);
    const auto found = state().handles.find(memory);
    if (object == nullptr || found == state().handles.end() || flags != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    return bind_memory(*object, offset, found->second.physical, memory_offset, size);
  });
}

CUresult cuMulticastUnbind(CUmemGenericAllocationHandle handle, CUdevice device, size_t offset,
                           size_t size) {
  return initialized([&] {
    Physical* const object = find_multicast(handle);
    return object == nullptr ? CUDA_ERROR_INVALID_VALUE : object->unbind(device, offset, size);
  });
}

size_t cuFakeMulticastUses() { return multicast_uses.load(); }

size_t cuFakeMulticastMembers(const void* address, size_t bytes, void** members, size_t most) {
  ++multicast_uses;
  const std::lock_guard lock(state().mutex);
  const auto at = reinterpret_cast<uintptr_t>(address);
  const auto range = range_of(at);
  if (range == state().memory.end() || range->second.kind != Range::Kind::mapped ||
      !range->second.physical->is_multicast() || range->second.accessible.empty()) {
    return 0;
  }
  const auto found = members_at(*range->second.physical, at - range->first, bytes);
  if (found.size() > most) return 0;
  std::ranges::transform(found, members, &Member::at);
  return found.size();
}

}  // extern "C"
