#include "base/cuda/api.h"

#include <dlfcn.h>

#include <atomic>
#include <mutex>
#include <optional>
#include <string_view>

#include "base/text.h"

namespace tutti::cuda {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";

struct Advice {
  std::string_view cause;
  std::string_view remedy;
  ErrorCode code = ErrorCode::system;
};

Advice advice_on_driver(CUresult result) {
  switch (result) {
    case CUDA_ERROR_STUB_LIBRARY:
      return {"the libcuda.so.1 that was found is the toolkit's stub, to link with only",
              "take its folder (.../stubs) out of LD_LIBRARY_PATH", ErrorCode::unsupported};
    case CUDA_ERROR_NO_DEVICE:
      return {"this host has no GPU, or CUDA_VISIBLE_DEVICES or the container hides all",
              "see nvidia-smi; give the container its GPUs (docker run --gpus all)",
              ErrorCode::unsupported};
    case CUDA_ERROR_NOT_INITIALIZED:
      return {"the process was forked from one that uses CUDA, or uses it before cuInit",
              "start processes before the first use of CUDA, or by exec"};
    case CUDA_ERROR_SYSTEM_NOT_READY:
      return {"the NVSwitches are not set up: the fabric manager does not run",
              "start nvidia-fabricmanager, of the driver's version", ErrorCode::unsupported};
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
    case CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE:
      return {"libcuda.so.1 and the kernel's NVIDIA module are of different versions",
              "reboot after the driver's update, or take a compat folder out of LD_LIBRARY_PATH",
              ErrorCode::unsupported};
    default:
      return {};
  }
}

Advice advice_on_work(CUresult result) {
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      return {"the GPU's memory (or the host's that may be pinned) is full",
              "see nvidia-smi for who has it; a framework's cache can be emptied, or limited"};
    case CUDA_ERROR_INVALID_IMAGE:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_INVALID_PTX:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
      return {"this build has no kernels for this GPU, or the driver is older than them",
              "build where the CUDA toolkit is installed, for this GPU; update the driver",
              ErrorCode::unsupported};
    case CUDA_ERROR_INVALID_CONTEXT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
      return {
          "no context of this GPU is current in this thread, or it was destroyed (by "
          "cudaDeviceReset, say)",
          "call cudaSetDevice in the thread that makes the call, and reset no device"};
    case CUDA_ERROR_PEER_ACCESS_UNSUPPORTED:
    case CUDA_ERROR_TOO_MANY_PEERS:
      return {"the two GPUs cannot reach each other's memory (MIG, PCIe topology, an IOMMU)",
              "see `nvidia-smi topo -p2p r`", ErrorCode::unsupported};
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
      return {"a kernel failed earlier, not always one of Tutti's; the context is lost",
              "compute-sanitizer finds the kernel; memory must outlive the calls that use it"};
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
      return {"the GPU or its links failed", "see nvidia-smi -q and dmesg (Xid)"};
    case CUDA_ERROR_NOT_SUPPORTED:
    case CUDA_ERROR_NOT_PERMITTED:
      return {"this GPU, driver or virtual machine cannot do it", "", ErrorCode::unsupported};
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
    case CUDA_ERROR_STREAM_CAPTURE_INVALIDATED:
    case CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
    case CUDA_ERROR_CAPTURED_EVENT:
      return {
          "what is not allowed while a stream is captured was called, or the legacy stream used",
          "make such calls (allocate, wait, create communicators) before the capture"};
    default:
      return {};
  }
}

// The driver as it was loaded, whether it can be used or not.
template <typename Table>
const Table& loaded() {
  static constinit std::mutex mutex;
  static constinit std::optional<Table> table;
  static constinit std::atomic<bool> is_there{false};
  if (!is_there.load(std::memory_order_acquire)) {
    const std::lock_guard lock(mutex);
    if (!table) table.emplace();
    is_there.store(true, std::memory_order_release);
  }
  return *table;
}

}  // namespace

Library::Library(const char* oldest)
    : oldest_(oldest), handle_(::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL)) {
  if (handle_ != nullptr) return;
  throw Error(ErrorCode::unsupported, cat("CUDA cannot be used: ", ::dlerror()),
              {.cause = "NVIDIA's driver is not installed here, or the container has no GPUs",
               .remedy = "install the driver (nvidia-smi works then), or give the container its "
                         "GPUs (docker run --gpus all), or the folder of libcuda.so.1 in "
                         "LD_LIBRARY_PATH"});
}

void* Library::find(const char* name) const {
  if (void* const function = ::dlsym(handle_, name)) return function;
  throw Error(ErrorCode::unsupported, cat("CUDA cannot be used: ", kLibrary, " lacks ", name),
              {.cause = cat("the driver is older than CUDA ", oldest_),
               .remedy = "update NVIDIA's driver"});
}

Error failure(const char* call, CUresult result) {
  const char* name = nullptr;
  const char* text = nullptr;
  if (loaded<Api>().get_error_name.result(result, &name) != CUDA_SUCCESS) name = "an unknown error";
  if (loaded<Api>().get_error_string.result(result, &text) != CUDA_SUCCESS) text = "";
  Advice advice = advice_on_driver(result);
  if (advice.cause.empty()) advice = advice_on_work(result);
  return Error(advice.code,
               cat("CUDA: ", call, ": ", name, " (", static_cast<int>(result), "): ", text),
               {.cause = std::string(advice.cause), .remedy = std::string(advice.remedy)});
}

const Api& api() {
  static constinit std::atomic<bool> is_ready{false};
  const Api& table = loaded<Api>();
  if (!is_ready.load(std::memory_order_acquire)) {
    table.init(0);  // may be called again
    is_ready.store(true, std::memory_order_release);
  }
  return table;
}

const MulticastApi& multicast_api() {
  api();
  return loaded<MulticastApi>();
}

bool available() {
  static const bool is_available = [] {
    try {
      int count = 0;
      return api().device_get_count.result(&count) == CUDA_SUCCESS && count > 0;
    } catch (const Error&) {
      return false;
    }
  }();
  return is_available;
}

}  // namespace tutti::cuda
