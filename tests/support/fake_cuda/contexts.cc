// Implements devices and contexts.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tests/support/fake_cuda/state.h"

namespace fake_cuda {
namespace {

std::vector<CUcontext>& stack() {
  thread_local std::vector<CUcontext> contexts;
  return contexts;
}

int device_count() { return static_cast<int>(state().contexts.size()); }
bool is_device(int device) { return device >= 0 && device < device_count(); }

template <typename Act>
CUresult of_device(int device, const Act& act) {
  return initialized([&] { return is_device(device) ? act() : CUDA_ERROR_INVALID_DEVICE; });
}

CUresult check_alive(CUcontext context) {
  for (const auto& known : state().contexts) {
    if (known.get() != context) continue;
    return context->holds > 0 ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  return CUDA_ERROR_INVALID_CONTEXT;
}

}  // namespace

State& state() {
  static State* const state = std::make_unique<State>().release();
  return *state;
}

int setting(const char* name, int fallback) {
  const char* const text = std::getenv(name);
  return text == nullptr ? fallback : std::atoi(text);
}

CUresult check_initialized() {
  return state().process == ::getpid() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult check_context(CUcontext* current) {
  if (const CUresult result = check_initialized(); result != CUDA_SUCCESS) return result;
  if (stack().empty()) return CUDA_ERROR_INVALID_CONTEXT;
  *current = stack().back();
  return check_alive(*current);
}

}  // namespace fake_cuda

using namespace fake_cuda;  // NOLINT

extern "C" {

CUresult cuInit(unsigned flags) {
  if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(state().mutex);
  if (state().process == ::getpid()) return CUDA_SUCCESS;
  if (state().process != 0) return CUDA_ERROR_NOT_INITIALIZED;
  const int count = setting("FAKE_CUDA_DEVICES", 8);
  if (count <= 0) return CUDA_ERROR_NO_DEVICE;
  for (int device = 0; device < count; ++device) {
    state().contexts.push_back(std::make_unique<CUctx_st>());
    state().contexts.back()->device = device;
  }
  state().process = ::getpid();
  return CUDA_SUCCESS;
}

CUresult cuDriverGetVersion(int* version) {
  *version = 13000;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int* count) {
  return initialized([&] {
    *count = device_count();
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return of_device(ordinal, [&] {
    *device = ordinal;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetName(char* name, int length, CUdevice device) {
  return of_device(device, [&] {
    std::snprintf(name, static_cast<size_t>(length), "Fake GPU");
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  return of_device(device, [&] {
    std::memset(uuid, 0, sizeof *uuid);
    std::snprintf(uuid->bytes, sizeof uuid->bytes, "fake-gpu-%d", device);
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetPCIBusId(char* text, int length, CUdevice device) {
  return of_device(device, [&] {
    std::snprintf(text, static_cast<size_t>(length), "0000:%02X:00.0", device + 1);
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  return of_device(device, [&] {
    switch (attribute) {
      case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        *value = 132;
        break;
      case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
        *value = 9;
        break;
      case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
        *value = 232448;
        break;
      case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
      case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
        *value = setting("FAKE_CUDA_VMM", 1);
        break;
      case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED:
        *value = setting("FAKE_CUDA_FABRIC", 0) != 0;
        break;
      case CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED:
        *value = setting("FAKE_CUDA_MULTICAST", 1);
        break;
      default:  // the minor version, and what is not supported
        *value = 0;
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice device) {
  return of_device(device, [&] {
    *bytes = kDeviceMemory;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  return of_device(device, [&] {
    if (!is_device(peer)) return CUDA_ERROR_INVALID_DEVICE;
    *can = device != peer;
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return of_device(device, [&] {
    *context = state().contexts[static_cast<size_t>(device)].get();
    if ((*context)->holds++ == 0) {
      (*context)->legacy = std::make_shared<CUstream_st>();
      (*context)->legacy->context = *context;
    }
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
  std::vector<TaskPointer> tasks;
  const CUresult result = of_device(device, [&] {
    CUctx_st& context = *state().contexts[static_cast<size_t>(device)];
    if (context.holds == 0) return CUDA_ERROR_INVALID_CONTEXT;
    if (context.holds == 1) tasks = unfinished(&context);
    return CUDA_SUCCESS;
  });
  if (result != CUDA_SUCCESS) return result;
  wait_for(tasks);
  return of_device(device, [&] {
    CUctx_st& context = *state().contexts[static_cast<size_t>(device)];
    if (--context.holds == 0) forget_context(&context);
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxPushCurrent_v2(CUcontext context) {
  return initialized([&] {
    const CUresult result = check_alive(context);
    if (result == CUDA_SUCCESS) stack().push_back(context);
    return result;
  });
}

CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  return initialized([&] {
    if (stack().empty()) return CUDA_ERROR_INVALID_CONTEXT;
    *context = stack().back();
    stack().pop_back();
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetCurrent(CUcontext* context) {
  return initialized([&] {
    *context = stack().empty() ? nullptr : stack().back();
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetDevice(CUdevice* device) {
  return in_context([&](CUcontext current) {
    *device = current->device;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSynchronize() {
  std::vector<TaskPointer> tasks;
  const CUresult result = in_context([&](CUcontext current) {
    tasks = unfinished(current);
    return check_no_capture();
  });
  if (result == CUDA_SUCCESS) wait_for(tasks);
  return result;
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
  return in_context([&](CUcontext current) {
    if (flags != 0) return CUDA_ERROR_INVALID_VALUE;
    if (const CUresult result = check_alive(peer); result != CUDA_SUCCESS) return result;
    if (peer == current) return CUDA_ERROR_INVALID_DEVICE;
    return current->peers.insert(peer).second ? CUDA_SUCCESS
                                              : CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  });
}

}  // extern "C"
