// Implements memory. A device's memory is a memfd, which other processes open under /proc. It is
// accessible to all threads of this process, so an access by the wrong device, or by the host, goes
// unnoticed.
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "tests/support/fake_cuda/state.h"

namespace fake_cuda {
namespace {

// Content of a CUipcMemHandle.
struct IpcHandle {
  FilePlace place;
  int device;
  size_t size;
};
static_assert(sizeof(IpcHandle) <= CU_IPC_HANDLE_SIZE);

size_t mapped_bytes(size_t size) {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  return (size + page - 1) / page * page;
}

void* map(int file, size_t size) {
  const int flags = file < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED;
  void* const at = ::mmap(nullptr, mapped_bytes(size), PROT_READ | PROT_WRITE, flags, file, 0);
  return at == MAP_FAILED ? nullptr : at;
}

bool is_device_base(std::map<uintptr_t, Range>::iterator range, CUdeviceptr address) {
  return range != state().memory.end() && range->first == address &&
         range->second.kind == Range::Kind::device;
}

// Returns true if the range is within an allocation accessible to the current device.
bool fits(CUcontext current, CUdeviceptr address, size_t bytes) {
  const auto range = range_of(address);
  if (range == state().memory.end()) return true;  // memory of the host
  const Range& found = range->second;
  if (found.kind == Range::Kind::mapped &&
      (found.physical->is_multicast() || !found.accessible.contains(current->device))) {
    return false;
  }
  return bytes <= range->second.size - (address - range->first);
}

bool is_pageable(CUdeviceptr address) { return range_of(address) == state().memory.end(); }

std::string bytes_of(const CUipcMemHandle& handle) {
  return {handle.reserved, sizeof handle.reserved};
}

CUresult open_handle(CUcontext current, const CUipcMemHandle& bytes, CUdeviceptr* opened) {
  IpcHandle handle{};
  std::memcpy(&handle, bytes.reserved, sizeof handle);
  if (handle.place.process == ::getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  for (auto& [base, range] : state().memory) {
    if (range.kind != Range::Kind::opened || range.handle != bytes_of(bytes)) continue;
    if (range.context != current) continue;
    ++range.opens;
    *opened = base;
    return CUDA_SUCCESS;
  }
  const tutti::Fd file = open_place(handle.place);
  if (!file) return CUDA_ERROR_INVALID_HANDLE;
  void* const at = map(file.get(), handle.size);
  if (at == nullptr) return CUDA_ERROR_MAP_FAILED;
  *opened = reinterpret_cast<uintptr_t>(at);
  state().memory[*opened] = {.kind = Range::Kind::opened,
                             .context = current,
                             .device = handle.device,
                             .size = handle.size,
                             .opens = 1,
                             .handle = bytes_of(bytes)};
  return CUDA_SUCCESS;
}

unsigned memory_type(const Range& range) {
  return range.kind == Range::Kind::pinned ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
}

void get_attribute(CUpointer_attribute attribute, CUdeviceptr address, void* value) {
  const auto range = range_of(address);
  const bool is_known = range != state().memory.end();
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      *static_cast<CUcontext*>(value) = is_known ? range->second.context : nullptr;
      break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned*>(value) = is_known ? memory_type(range->second) : 0u;
      break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      *static_cast<unsigned*>(value) = 0;
      break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(value) = is_known ? range->second.device : -2;
      break;
  }
}

// The driver frees memory only when the device is idle.
template <typename IsRight>
CUresult free_when_idle(CUdeviceptr address, const IsRight& is_right) {
  std::vector<TaskPointer> tasks;
  const CUresult result = in_context([&](CUcontext) {
    const auto range = range_of(address);
    if (!is_right(range)) return CUDA_ERROR_INVALID_VALUE;
    tasks = unfinished(range->second.context);
    return check_no_capture();
  });
  if (result != CUDA_SUCCESS) return result;
  wait_for(tasks);
  return in_context([&](CUcontext) {
    const auto range = range_of(address);
    if (!is_right(range)) return CUDA_ERROR_INVALID_VALUE;
    if (range->second.kind != Range::Kind::opened || --range->second.opens == 0) free_memory(range);
    return CUDA_SUCCESS;
  });
}

}  // namespace

std::map<uintptr_t, Range>::iterator range_of(CUdeviceptr address) {
  auto& memory = state().memory;
  auto next = memory.upper_bound(address);
  if (next == memory.begin()) return memory.end();
  --next;
  return address - next->first < next->second.size ? next : memory.end();
}

// Memory held only by a mapping is not counted.
size_t used_bytes(int device) {
  size_t bytes = 0;
  for (const auto& [base, range] : state().memory) {
    if (range.kind == Range::Kind::device && range.device == device) bytes += range.size;
  }
  for (const auto& [number, handle] : state().handles) {
    const PhysicalHeader& header = handle.physical->header();
    const bool is_own = !handle.is_imported && !handle.physical->is_multicast();
    if (is_own && header.device == device) bytes += header.size;
  }
  return bytes;
}

void free_memory(std::map<uintptr_t, Range>::iterator range) {
  ::munmap(reinterpret_cast<void*>(range->first), mapped_bytes(range->second.size));
  state().memory.erase(range);
}

}  // namespace fake_cuda

using namespace fake_cuda;  // NOLINT

extern "C" {

CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
  return in_context([&](CUcontext current) {
    if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = check_no_capture(); result != CUDA_SUCCESS) return result;
    if (bytes > kDeviceMemory - used_bytes(current->device)) return CUDA_ERROR_OUT_OF_MEMORY;
    tutti::Fd file(::memfd_create("fake_cuda", MFD_CLOEXEC));
    if (!file || ::ftruncate(file.get(), static_cast<off_t>(mapped_bytes(bytes))) != 0) {
      return CUDA_ERROR_OPERATING_SYSTEM;
    }
    void* const at = map(file.get(), bytes);
    if (at == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    *address = reinterpret_cast<uintptr_t>(at);
    state().memory[*address] = {
        .context = current, .device = current->device, .size = bytes, .file = std::move(file)};
    return CUDA_SUCCESS;
  });
}

CUresult cuMemFree_v2(CUdeviceptr address) {
  return free_when_idle(address, [&](auto range) { return is_device_base(range, address); });
}

CUresult cuMemHostAlloc(void** pointer, size_t bytes, unsigned) {
  return in_context([&](CUcontext current) {
    if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = check_no_capture(); result != CUDA_SUCCESS) return result;
    *pointer = map(-1, bytes);
    if (*pointer == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
    state().memory[reinterpret_cast<uintptr_t>(*pointer)] = {
        .kind = Range::Kind::pinned, .context = current, .device = current->device, .size = bytes};
    return CUDA_SUCCESS;
  });
}

CUresult cuMemFreeHost(void* pointer) {
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  return free_when_idle(address, [&](auto range) {
    return range != state().memory.end() && range->first == address &&
           range->second.kind == Range::Kind::pinned;
  });
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr* address, void* pointer, unsigned) {
  return in_context([&](CUcontext) {
    const auto range = range_of(reinterpret_cast<uintptr_t>(pointer));
    if (range == state().memory.end() || range->second.kind != Range::Kind::pinned) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    *address = reinterpret_cast<uintptr_t>(pointer);
    return CUDA_SUCCESS;
  });
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* size, CUdeviceptr address) {
  return in_context([&](CUcontext) {
    const auto range = range_of(address);
    if (range == state().memory.end()) return CUDA_ERROR_NOT_FOUND;
    *base = range->first;
    *size = range->second.size;
    return CUDA_SUCCESS;
  });
}

CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** values,
                                CUdeviceptr address) {
  return initialized([&] {
    for (unsigned i = 0; i < count; ++i) get_attribute(attributes[i], address, values[i]);
    return CUDA_SUCCESS;
  });
}

CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  return in_context([&](CUcontext) {
    const auto range = range_of(address);
    if (!is_device_base(range, address)) return CUDA_ERROR_INVALID_VALUE;
    struct stat status = {};
    if (::fstat(range->second.file.get(), &status) != 0) return CUDA_ERROR_OPERATING_SYSTEM;
    const IpcHandle content{.place = {::getpid(), range->second.file.get(), status.st_ino},
                            .device = range->second.device,
                            .size = range->second.size};
    std::memset(handle, 0, sizeof *handle);
    std::memcpy(handle->reserved, &content, sizeof content);
    return CUDA_SUCCESS;
  });
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr* address, CUipcMemHandle handle, unsigned flags) {
  return in_context([&](CUcontext current) {
    if (flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = check_no_capture(); result != CUDA_SUCCESS) return result;
    return open_handle(current, handle, address);
  });
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  return free_when_idle(address, [&](auto range) {
    return range != state().memory.end() && range->first == address &&
           range->second.kind == Range::Kind::opened;
  });
}

// Pageable host memory is read, or written, before the call returns.
CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  TaskPointer task;
  const CUresult result = in_context([&](CUcontext current) {
    if (!fits(current, to, bytes) || !fits(current, from, bytes)) return CUDA_ERROR_INVALID_VALUE;
    CUstream_st* found = nullptr;
    if (const CUresult result = find_stream(stream, &found); result != CUDA_SUCCESS) return result;
    std::shared_ptr<std::vector<std::byte>> staged;
    const auto* source = reinterpret_cast<const std::byte*>(from);
    if (is_pageable(from) && found->capturing == nullptr) {
      staged = std::make_shared<std::vector<std::byte>>(source, source + bytes);
      source = staged->data();
    }
    const bool waits = is_pageable(to);
    TaskPointer copy;
    const CUresult result = put(
        stream,
        [to, source, bytes, staged] {
          delay();
          std::memmove(reinterpret_cast<void*>(to), source, bytes);
        },
        {}, &copy);
    if (waits) task = copy;
    return result;
  });
  if (task != nullptr) task->wait();
  return result;
}

// Returns the number of live device allocations.
size_t cuFakeAllocations() {
  const std::lock_guard lock(state().mutex);
  return static_cast<size_t>(std::ranges::count_if(
      state().memory, [](const auto& entry) { return entry.second.kind == Range::Kind::device; }));
}

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t bytes, CUstream stream) {
  return in_context([&](CUcontext current) {
    if (is_pageable(to) || !fits(current, to, bytes)) return CUDA_ERROR_INVALID_VALUE;
    return put(stream, [to, value, bytes] {
      delay();
      std::memset(reinterpret_cast<void*>(to), value, bytes);
    });
  });
}

}  // extern "C"
