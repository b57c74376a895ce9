// Implements virtual memory management: address ranges, memory, and mappings. With
// FAKE_CUDA_FABRIC=2 the devices claim to support fabric handles but fail to create them.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cstring>

#include "tests/support/fake_cuda/state.h"

namespace fake_cuda {

Physical* find_physical(CUmemGenericAllocationHandle handle) {
  const auto found = state().handles.find(handle);
  return found == state().handles.end() ? nullptr : found->second.physical.get();
}

CUmemGenericAllocationHandle add_handle(std::shared_ptr<Physical> physical, bool is_imported) {
  state().handles[++state().last_handle] = {std::move(physical), is_imported};
  return state().last_handle;
}

bool handle_types_are_known(unsigned long long types) {
  const unsigned long long known =
      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR |
      (setting("FAKE_CUDA_FABRIC", 0) != 0 ? CU_MEM_HANDLE_TYPE_FABRIC : CU_MEM_HANDLE_TYPE_NONE);
  return (types & ~known) == 0;
}

namespace {

using Ranges = std::map<uintptr_t, Range>;

CUresult check_properties(const CUmemAllocationProp& properties) {
  const int devices = static_cast<int>(state().contexts.size());
  const CUmemLocation& location = properties.location;
  if (properties.type != CU_MEM_ALLOCATION_TYPE_PINNED ||
      location.type != CU_MEM_LOCATION_TYPE_DEVICE || properties.win32HandleMetaData != nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (location.id < 0 || location.id >= devices) return CUDA_ERROR_INVALID_DEVICE;
  if (setting("FAKE_CUDA_VMM", 1) == 0) return CUDA_ERROR_NOT_SUPPORTED;
  const auto types = static_cast<unsigned>(properties.requestedHandleTypes);
  return handle_types_are_known(types) ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

bool reserve(size_t size, size_t alignment, CUdeviceptr* address) {
  void* const all = ::mmap(nullptr, size + alignment, PROT_NONE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) return false;
  const auto begin = reinterpret_cast<uintptr_t>(all);
  const uintptr_t at = (begin + alignment - 1) / alignment * alignment;
  if (at > begin) ::munmap(all, at - begin);
  const size_t behind = begin + alignment - at;
  if (behind > 0) ::munmap(reinterpret_cast<void*>(at + size), behind);
  *address = at;
  return true;
}

bool is_reserved(CUdeviceptr address, size_t size) {
  auto next = state().reservations.upper_bound(address);
  if (next == state().reservations.begin()) return false;
  --next;
  return address + size <= next->first + next->second;
}

bool is_mapped_anywhere(CUdeviceptr address, size_t size) {
  const auto next = state().memory.lower_bound(address);
  return (next != state().memory.end() && next->first < address + size) ||
         range_of(address) != state().memory.end();
}

// Returns the mappings that exactly cover the range; empty if there are none.
std::vector<Ranges::iterator> mappings_of(CUdeviceptr address, size_t size) {
  std::vector<Ranges::iterator> found;
  uintptr_t at = address;
  while (at < address + size) {
    const auto range = state().memory.find(at);
    if (range == state().memory.end() || range->second.kind != Range::Kind::mapped) return {};
    found.push_back(range);
    at += range->second.size;
  }
  return at == address + size ? found : std::vector<Ranges::iterator>();
}

CUresult map(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle number) {
  const auto handle = state().handles.find(number);
  if (handle == state().handles.end()) return CUDA_ERROR_INVALID_VALUE;
  const std::shared_ptr<Physical> physical = handle->second.physical;
  const bool is_multicast = physical->is_multicast();
  // A real driver waits for the missing devices.
  if (is_multicast && !physical->has_whole_team()) return CUDA_ERROR_ILLEGAL_STATE;
  const size_t granularity = is_multicast ? kMulticastGranularity : kGranularity;
  if (size == 0 || address % granularity != 0 || size % granularity != 0 || offset != 0 ||
      size > physical->header().size || !is_reserved(address, size) ||
      is_mapped_anywhere(address, size)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  void* const at = reinterpret_cast<void*>(address);
  if (!is_multicast &&
      ::mmap(at, size, PROT_NONE, MAP_SHARED | MAP_FIXED, physical->file(), 0) != at) {
    return CUDA_ERROR_MAP_FAILED;
  }
  state().memory[address] = {.kind = Range::Kind::mapped,
                             .device = physical->header().device,
                             .size = size,
                             .physical = physical};
  return CUDA_SUCCESS;
}

CUresult set_access(Range& range, uintptr_t base, const CUmemAccessDesc& access) {
  const int device = access.location.id;
  if (access.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
  if (device < 0 || device >= static_cast<int>(state().contexts.size())) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  if (access.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE) {
    range.accessible.insert(device);
  } else {
    range.accessible.erase(device);
  }
  // its mapping is not for ordinary loads and stores
  if (range.physical->is_multicast()) return CUDA_SUCCESS;
  const int protection = range.accessible.empty() ? PROT_NONE : PROT_READ | PROT_WRITE;
  const int result = ::mprotect(reinterpret_cast<void*>(base), range.size, protection);
  return result == 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

CUresult export_to(void* to, const Physical& physical, CUmemAllocationHandleType type) {
  if ((physical.header().handle_types & static_cast<unsigned>(type)) == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (type == CU_MEM_HANDLE_TYPE_FABRIC) {
    const FilePlace place = physical.place();
    std::memset(to, 0, sizeof(CUmemFabricHandle));
    std::memcpy(to, &place, sizeof place);
    return CUDA_SUCCESS;
  }
  const int copy = ::fcntl(physical.file(), F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  std::memcpy(to, &copy, sizeof copy);
  return CUDA_SUCCESS;
}

CUresult import_from(const void* from, CUmemAllocationHandleType type,
                     CUmemGenericAllocationHandle* handle) {
  tutti::Fd file;
  if (type == CU_MEM_HANDLE_TYPE_FABRIC) {
    FilePlace place;
    std::memcpy(&place, from, sizeof place);
    file = open_place(place);
  } else if (type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    const auto number = static_cast<int>(reinterpret_cast<intptr_t>(from));
    file = tutti::Fd(::fcntl(number, F_DUPFD_CLOEXEC, 0));
  }
  if (!file) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Physical> physical = Physical::open(std::move(file));
  if (physical == nullptr || (physical->header().handle_types & static_cast<unsigned>(type)) == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *handle = add_handle(std::move(physical), true);
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace fake_cuda

using namespace fake_cuda;  // NOLINT

extern "C" {

CUresult cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* properties,
                                       CUmemAllocationGranularity_flags) {
  return initialized([&] {
    *granularity = kGranularity;
    return check_properties(*properties);
  });
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size,
                     const CUmemAllocationProp* properties, unsigned long long flags) {
  return initialized([&] {
    const CUresult result = check_properties(*properties);
    if (result != CUDA_SUCCESS) return result;
    if (size == 0 || size % kGranularity != 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    const auto types = static_cast<unsigned>(properties->requestedHandleTypes);
    if ((types & CU_MEM_HANDLE_TYPE_FABRIC) != 0 && setting("FAKE_CUDA_FABRIC", 0) == 2) {
      return CUDA_ERROR_NOT_PERMITTED;
    }
    const int device = properties->location.id;
    if (size > kDeviceMemory - used_bytes(device)) return CUDA_ERROR_OUT_OF_MEMORY;
    std::shared_ptr<Physical> physical = Physical::make(device, size, types, 0);
    if (physical == nullptr) return CUDA_ERROR_OPERATING_SYSTEM;
    *handle = add_handle(std::move(physical), false);
    return CUDA_SUCCESS;
  });
}

// Mapped memory stays until it is unmapped.
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  return initialized(
      [&] { return state().handles.erase(handle) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; });
}

CUresult cuMemExportToShareableHandle(void* to, CUmemGenericAllocationHandle handle,
                                      CUmemAllocationHandleType type, unsigned long long flags) {
  return initialized([&] {
    const Physical* const physical = find_physical(handle);
    if (physical == nullptr || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    return export_to(to, *physical, type);
  });
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* from,
                                        CUmemAllocationHandleType type) {
  return initialized([&] { return import_from(from, type, handle); });
}

CUresult cuMemAddressReserve(CUdeviceptr* address, size_t size, size_t alignment, CUdeviceptr,
                             unsigned long long flags) {
  return initialized([&] {
    const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    if (size == 0 || size % page != 0 || flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (alignment != 0 && !std::has_single_bit(alignment)) return CUDA_ERROR_INVALID_VALUE;
    if (!reserve(size, std::max(alignment, kGranularity), address)) {
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
    state().reservations[*address] = size;
    return CUDA_SUCCESS;
  });
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t size) {
  return initialized([&] {
    const auto found = state().reservations.find(address);
    if (found == state().reservations.end() || found->second != size ||
        is_mapped_anywhere(address, size)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    ::munmap(reinterpret_cast<void*>(address), size);
    state().reservations.erase(found);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags) {
  return initialized(
      [&] { return flags == 0 ? map(address, size, offset, handle) : CUDA_ERROR_INVALID_VALUE; });
}

CUresult cuMemUnmap(CUdeviceptr address, size_t size) {
  return initialized([&] {
    const auto ranges = mappings_of(address, size);
    if (ranges.empty()) return CUDA_ERROR_INVALID_VALUE;
    for (const auto range : ranges) {
      ::mmap(reinterpret_cast<void*>(range->first), range->second.size, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
      state().memory.erase(range);
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* address) {
  return initialized([&] {
    const auto range = range_of(reinterpret_cast<uintptr_t>(address));
    if (range == state().memory.end() || range->second.kind != Range::Kind::mapped) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    *handle = add_handle(range->second.physical, false);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* properties,
                                                CUmemGenericAllocationHandle handle) {
  return initialized([&] {
    const Physical* const physical = find_physical(handle);
    if (physical == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const PhysicalHeader& header = physical->header();
    *properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = static_cast<CUmemAllocationHandleType>(header.handle_types),
        .location = {CU_MEM_LOCATION_TYPE_DEVICE, header.device},
        .win32HandleMetaData = nullptr,
        .allocFlags = {}};
    return CUDA_SUCCESS;
  });
}

CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc* accesses,
                        size_t count) {
  return initialized([&] {
    const auto ranges = mappings_of(address, size);
    if (ranges.empty() || count == 0) return CUDA_ERROR_INVALID_VALUE;
    for (const auto range : ranges) {
      for (size_t i = 0; i < count; ++i) {
        const CUresult result = set_access(range->second, range->first, accesses[i]);
        if (result != CUDA_SUCCESS) return result;
      }
    }
    return CUDA_SUCCESS;
  });
}

}  // extern "C"
