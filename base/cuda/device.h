// GPUs, and the CUDA context in which a thread uses one.
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
  int ordinal = 0;  // index in this process (CUDA_VISIBLE_DEVICES applies)
  std::string name = {};
  std::string pci_bus_id = {};  // "0000:06:00.0"
  Uuid uuid = {};               // the same in all processes
  int compute_capability = 0;   // 90 for 9.0
  int multiprocessors = 0;
  size_t memory_bytes = 0;
  size_t most_shared_bytes = 0;  // shared memory limit of a block that opts in (allow_shared_bytes)
  bool is_mig = false;           // a MIG slice of a GPU, which has no peers
  bool has_virtual_memory = false;
  bool has_file_descriptors = false;  // memory can be shared by file descriptor
  bool has_fabric_handles = false;
  bool has_multicast = false;
};

int device_count();
DeviceInfo device_info(int ordinal);
// Returns the ordinal of the device whose context is current in this thread. If no context is
// current, returns the first device.
int current_device();
// Returns true if kernels of `device` can access memory of `peer`. A device can access its own
// memory.
bool can_access_peer(int device, int peer);

// The primary context of a device, shared by all its users in the process (PyTorch, cudart, other
// communicators). Copies share one reference; the last copy releases the context, so every object
// that lives in the context keeps a copy.
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

// Makes a context current for this thread; the destructor restores the previous one.
class CurrentContext {
 public:
  explicit CurrentContext(const Context& context) : CurrentContext(context.handle()) {}
  explicit CurrentContext(CUcontext context);
  ~CurrentContext();
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;
};

// Returns a cleanup that frees a resource of a context and keeps the context alive until then.
// `free` runs with the context current and must not throw. At process exit it may run after the
// driver's shutdown.
Cleanup freed_in(const Context& context, std::function<void()> free);

// Blocks until all work in the context has completed.
void synchronize(const Context& context);

}  // namespace tutti::cuda
