// GPUs, and the context in which a thread uses one.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "base/cleanup.h"
#include "base/cuda/abi.h"

namespace tutti::cuda {

using Uuid = std::array<std::byte, 16>;

struct DeviceInfo {
  int ordinal = 0;  // as CUDA_VISIBLE_DEVICES numbers them in this process
  std::string name = {};
  std::string pci_bus_id = {};  // "0000:06:00.0"
  Uuid uuid = {};               // the same in all processes
  int compute_capability = 0;   // 90 for 9.0
  int multiprocessors = 0;
  size_t memory_bytes = 0;
  size_t most_shared_bytes = 0;  // of a block that asks for it (allow_shared_bytes)
  bool is_mig = false;           // a part of a GPU, which has no peers
  bool has_virtual_memory = false;
  bool has_file_descriptors = false;  // for memory that is shared
  bool has_fabric_handles = false;
  bool has_multicast = false;
};

int device_count();
DeviceInfo device_info(int ordinal);
// The ordinal of the device whose context is current in this thread; where none is, the first
// one's.
int current_device();
// Whether kernels of `device` can reach the memory of `peer`. A device reaches its own.
bool can_access_peer(int device, int peer);

// The primary context of a device, which all of the process's users of the device share (PyTorch,
// cudart, other communicators). Copies share one hold on it; it is released with the last of them,
// so whatever lives in the context keeps a copy.
class Context {
 public:
  explicit Context(int ordinal);

  CUcontext handle() const { return retained_->handle; }
  int ordinal() const { return retained_->ordinal; }

 private:
  struct Retained {
    explicit Retained(int ordinal);
    ~Retained();
    Retained(const Retained&) = delete;
    Retained& operator=(const Retained&) = delete;

    int ordinal;
    CUdevice device = 0;
    CUcontext handle = nullptr;
  };

  std::shared_ptr<const Retained> retained_;
};

// Makes a context current for this thread while it lives; then the one before is again.
class CurrentContext {
 public:
  explicit CurrentContext(const Context& context) : CurrentContext(context.handle()) {}
  explicit CurrentContext(CUcontext context);
  ~CurrentContext();
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;
};

// What frees something of a context, and keeps the context as long as that takes. `free` is called
// with the context current, at the end of the process perhaps after the driver's: it does not
// throw.
Cleanup freed_in(const Context& context, std::function<void()> free);

// Waits for all work in it.
void synchronize(const Context& context);

}  // namespace tutti::cuda
