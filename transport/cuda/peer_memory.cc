#include "transport/cuda/peer_memory.h"

#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <string>

#include "base/error.h"
#include "transport/cuda/api.h"
#include "transport/cuda/memory.h"

namespace tutti::cuda {
namespace {

uint64_t this_process() {
  static const uint64_t number = [] {
    uint64_t random = 0;
    if (::getrandom(&random, sizeof random, 0) != sizeof random) {
      throw system_error("getrandom", errno);
    }
    return random;
  }();
  return number;
}

// An allocation of another process, mapped into this one.
class Opened {
 public:
  Opened(const Context& context, const CUipcMemHandle& handle) {
    const CurrentContext current(context);
    CUdeviceptr opened = 0;
    api().ipc_open_mem_handle(&opened, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    close_ = freed_in(context, [opened] { api().ipc_close_mem_handle.result(opened); });
    base_ = pointer(opened);
  }
  std::byte* base() const { return base_; }

 private:
  std::byte* base_ = nullptr;
  Cleanup close_;
};

// What is open, by context and handle. It is closed with the last of its users, under the lock, so
// that nobody finds what is being closed.
class OpenedTable {
 public:
  std::shared_ptr<const Opened> open(const Context& context, const CUipcMemHandle& handle) {
    const Key key{context.handle(), std::string(handle.reserved, sizeof handle.reserved)};
    const std::lock_guard lock(mutex_);
    Entry& entry = entries_[key];
    try {
      if (entry.users == 0) entry.opened = std::make_unique<const Opened>(context, handle);
    } catch (...) {
      entries_.erase(key);
      throw;
    }
    ++entry.users;
    return {entry.opened.get(), [this, key](const Opened*) { close(key); }};
  }

 private:
  using Key = std::pair<CUcontext, std::string>;
  struct Entry {
    int users = 0;
    std::unique_ptr<const Opened> opened;
  };

  void close(const Key& key) {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(key);
    if (--found->second.users == 0) entries_.erase(found);
  }

  std::mutex mutex_;
  std::map<Key, Entry> entries_;
};

OpenedTable& opened_table() {
  static OpenedTable table;
  return table;
}

void let_reach(const Context& context, const void* memory) {
  const CUcontext owner = describe(memory).context;
  if (owner == nullptr || owner == context.handle()) return;
  const CurrentContext current(context);
  const CUresult result = api().ctx_enable_peer_access.result(owner, 0);
  if (result != CUDA_SUCCESS && result != CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) {
    throw failure(api().ctx_enable_peer_access.name(), result);
  }
}

}  // namespace

ExportedMemory export_memory(const void* device_pointer) {
  const PointerInfo info = describe(device_pointer);
  if (info.kind != MemoryKind::device) {
    throw Error(ErrorCode::invalid_argument, "only a GPU's memory can be exported to other ranks",
                {.cause = "the pointer is one into the host's memory, or into managed memory",
                 .remedy = "allocate it by cudaMalloc"});
  }
  const Allocation allocation = allocation_of(device_pointer);
  ExportedMemory exported{
      .process = this_process(),
      .pointer = address(device_pointer),
      .offset = address(device_pointer) - address(allocation.base),
      .size = allocation.size,
      .device = device_info(info.device).uuid,
  };
  const CUresult result =
      api().ipc_get_mem_handle.result(&exported.handle, address(allocation.base));
  if (result == CUDA_SUCCESS) return exported;
  throw Error(ErrorCode::unsupported, failure(api().ipc_get_mem_handle.name(), result).what(),
              {.cause = "the memory is of a pool (cudaMallocAsync) or mapped by cuMemMap, which "
                        "CUDA's IPC does not share",
               .remedy = "allocate it by cudaMalloc; PyTorch: PYTORCH_CUDA_ALLOC_CONF="
                         "expandable_segments:False"});
}

ImportedMemory::ImportedMemory(const Context& context, const ExportedMemory& exported)
    : size_(exported.size - exported.offset) {
  if (exported.offset >= exported.size) {
    throw Error(ErrorCode::invalid_argument, "what describes another rank's memory is damaged");
  }
  if (exported.process == this_process()) {
    data_ = pointer(exported.pointer);
    let_reach(context, data_);
    return;
  }
  const std::shared_ptr<const Opened> opened = opened_table().open(context, exported.handle);
  data_ = opened->base() + exported.offset;
  opened_ = opened;
}

}  // namespace tutti::cuda
