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
      return {"the loaded libcuda.so.1 is the toolkit's stub, which is for linking only",
              "remove its directory (.../stubs) from LD_LIBRARY_PATH", ErrorCode::unsupported};
    case CUDA_ERROR_NO_DEVICE:
      return {"this host has no GPU, or CUDA_VISIBLE_DEVICES or the container hides all GPUs",
              "run nvidia-smi; pass the GPUs to the container (docker run --gpus all)",
              ErrorCode::unsupported};
    case CUDA_ERROR_NOT_INITIALIZED:
      return {"the process was forked after CUDA was initialised, or CUDA was used before cuInit",
              "start processes before the first use of CUDA, or by exec"};
    case CUDA_ERROR_SYSTEM_NOT_READY:
      return {"the NVSwitches are not initialised: the fabric manager is not running",
              "start nvidia-fabricmanager of the driver's version", ErrorCode::unsupported};
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
    case CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE:
      return {"libcuda.so.1 and NVIDIA's kernel module have different versions",
              "reboot after a driver update, or remove a compat directory from LD_LIBRARY_PATH",
              ErrorCode::unsupported};
    default:
      return {};
  }
}

Advice advice_on_work(CUresult result) {
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      return {"GPU memory (or pinnable host memory) is exhausted",
              "run nvidia-smi to see which process uses it; empty or limit a framework's cache"};
    case CUDA_ERROR_INVALID_IMAGE:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_INVALID_PTX:
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION:
      return {"this build has no kernels for this GPU, or the driver is older than the kernels",
              "build for this GPU with the CUDA toolkit installed, or update the driver",
              ErrorCode::unsupported};
    case CUDA_ERROR_INVALID_CONTEXT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
      return {
          "no context of this GPU is current in this thread, or it was destroyed (by "
          "cudaDeviceReset, say)",
          "call cudaSetDevice in the calling thread, and do not reset the device"};
    case CUDA_ERROR_PEER_ACCESS_UNSUPPORTED:
    case CUDA_ERROR_TOO_MANY_PEERS:
      return {"the two GPUs cannot access each other's memory (MIG, PCIe topology, an IOMMU)",
              "run `nvidia-smi topo -p2p r`", ErrorCode::unsupported};
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_FAILED:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
      return {
          "an earlier kernel failed, possibly the application's; the context is lost",
          "find the kernel with compute-sanitizer; keep memory allocated until its calls complete"};
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
      return {"the GPU or its links failed", "check nvidia-smi -q and dmesg (Xid)"};
    case CUDA_ERROR_NOT_SUPPORTED:
    case CUDA_ERROR_NOT_PERMITTED:
      return {"this GPU, driver or virtual machine does not support the call", "",
              ErrorCode::unsupported};
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
    case CUDA_ERROR_STREAM_CAPTURE_INVALIDATED:
    case CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
    case CUDA_ERROR_CAPTURED_EVENT:
      return {
          "a call that stream capture forbids was made during a capture, or the legacy stream was "
          "used",
          "make such calls (allocate, synchronise, create communicators) before the capture"};
    default:
      return {};
  }
}

// Returns a table of driver functions, which the first call loads; throws if that fails.
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
  throw Error(
      ErrorCode::unsupported, cat("CUDA cannot be used: ", ::dlerror()),
      {.cause = "NVIDIA's driver is not installed, or the container has no GPUs",
       .remedy =
           "install the driver (check with nvidia-smi), pass the GPUs to the container (docker run "
           "--gpus all), or add the directory of libcuda.so.1 to LD_LIBRARY_PATH"});
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
    table.init(0);  // may be called several times
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
