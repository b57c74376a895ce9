#include "base/cuda/peer_memory.h"

#include <bit>
#include <map>
#include <mutex>
#include <string>

#include "base/cuda/api.h"
#include "base/cuda/memory.h"
#include "base/error.h"

namespace tutti::cuda {
namespace {

// An allocation of another process, mapped into this one.
class Opened {
 public:
  Opened(const Context& context, const ExportedMemory& exported) {
    if (exported.handle.sharing != Sharing::ipc) {
      handle_ = import_handle(context, exported.handle);
      mapping_ = Mapping(context, handle_, exported.size, 0);
      base_ = mapping_.data();
      return;
    }
    const CurrentContext current(context);
    CUdeviceptr opened = 0;
    api().ipc_open_mem_handle(&opened, std::bit_cast<CUipcMemHandle>(exported.handle.bytes),
                              CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
    close_ = freed_in(context, [opened] { api().ipc_close_mem_handle.result(opened); });
    base_ = pointer(opened);
  }
  std::byte* base() const { return base_; }

 private:
  std::byte* base_ = nullptr;
  AllocationHandle handle_;
  Mapping mapping_;
  Cleanup close_;
};

// The open mappings by context and handle. The last user closes a mapping under the lock, so that
// no thread can find a mapping that is being closed.
class OpenedTable {
 public:
  std::shared_ptr<const Opened> open(const Context& context, const ExportedMemory& exported) {
    const auto& bytes = exported.handle.bytes;
    const Key key{context.handle(),
                  std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())};
    const std::lock_guard lock(mutex_);
    Entry& entry = entries_[key];
    try {
      if (entry.users == 0) entry.opened = std::make_unique<const Opened>(context, exported);
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

// Enables the context's access to memory that another device has in this process.
void let_reach(const Context& context, const ExportedMemory& exported) {
  const std::byte* const memory = pointer(exported.pointer);
  if (exported.handle.sharing != Sharing::ipc) {
    return allow_access(context, memory - exported.offset, exported.size);
  }
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
    throw Error(ErrorCode::invalid_argument, "only GPU memory can be exported to other ranks",
                {.cause = "the pointer refers to host memory or managed memory",
                 .remedy = "allocate the buffer by cudaMalloc"});
  }
  const Allocation allocation = allocation_of(device_pointer);
  ExportedMemory exported{
      .process = this_process(),
      .pointer = address(device_pointer),
      .offset = address(device_pointer) - address(allocation.base),
      .size = allocation.size,
      .device = device_info(info.device).uuid,
  };
  CUipcMemHandle handle = {};
  const CUresult result = api().ipc_get_mem_handle.result(&handle, address(allocation.base));
  exported.handle.bytes = std::bit_cast<decltype(exported.handle.bytes)>(handle);
  if (result == CUDA_SUCCESS) return exported;
  throw Error(ErrorCode::unsupported, failure(api().ipc_get_mem_handle.name(), result).what(),
              {.cause = "the memory comes from a pool (cudaMallocAsync) or cuMemMap, which CUDA "
                        "IPC does not support",
               .remedy = "allocate the buffer by cudaMalloc; PyTorch: PYTORCH_CUDA_ALLOC_CONF="
                         "expandable_segments:False"});
}

OfferedMemory::OfferedMemory(const Context& context, const void* device_pointer)
    : handle_(handle_of(context, device_pointer)) {
  if (!handle_) {
    const CurrentContext current(context);
    exported_ = export_memory(device_pointer);
    return;
  }
  const std::vector<Sharing> sharings = sharings_of(handle_);
  if (sharings.empty()) {
    throw Error(ErrorCode::unsupported, "this GPU memory cannot be shared with other ranks",
                {.cause = "cuMemMap mapped it from an allocation without a shareable handle type",
                 .remedy = "allocate the buffer by cudaMalloc or by Tutti; PyTorch: "
                           "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False"});
  }
  const Allocation allocation = allocation_of(device_pointer);
  exported_handle_ = ExportedHandle(handle_, sharings.front());
  exported_ = {.process = this_process(),
               .pointer = address(device_pointer),
               .offset = address(device_pointer) - address(allocation.base),
               .size = allocation.size,
               .handle = exported_handle_.shareable(),
               .device = device_info(context.ordinal()).uuid};
}

SharedMemory::SharedMemory(const Context& context, size_t bytes) {
  for (const Sharing sharing : sharings_of(context.ordinal())) {
    if (create(context, bytes, sharing)) return;
  }
  plain_.emplace(context, bytes);
  const CurrentContext current(context);
  exported_ = export_memory(plain_->data());
}

// Allocates, maps and exports the memory. Returns false if CUDA refuses this way of sharing.
bool SharedMemory::create(const Context& context, size_t bytes, Sharing sharing) {
  const CurrentContext current(context);
  const CUmemAllocationProp properties{
      .type = CU_MEM_ALLOCATION_TYPE_PINNED,
      .requestedHandleTypes = handle_type(sharing),
      .location = {CU_MEM_LOCATION_TYPE_DEVICE, context.ordinal()},
      .win32HandleMetaData = nullptr,
      .allocFlags = {},
  };
  size_t granularity = 0;
  api().mem_get_allocation_granularity(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  const size_t size = round_up(bytes, granularity);
  CUmemGenericAllocationHandle made = 0;
  const CUresult result = api().mem_create.result(&made, size, &properties, 0);
  if (is_refused(result)) return false;
  if (result != CUDA_SUCCESS) throw failure(api().mem_create.name(), result);
  handle_ = AllocationHandle(context, made);
  exported_handle_ = ExportedHandle(handle_, sharing);
  mapping_ = Mapping(context, handle_, size, granularity);
  exported_ = {.process = this_process(),
               .pointer = address(mapping_.data()),
               .size = size,
               .handle = exported_handle_.shareable(),
               .device = device_info(context.ordinal()).uuid};
  return true;
}

std::byte* SharedMemory::data() const { return plain_ ? plain_->data() : mapping_.data(); }

ImportedMemory::ImportedMemory(const Context& context, const ExportedMemory& exported)
    : size_(exported.size - exported.offset) {
  if (exported.offset >= exported.size) {
    throw Error(ErrorCode::invalid_argument, "a peer's memory descriptor is corrupted");
  }
  if (exported.process == this_process()) {
    data_ = pointer(exported.pointer);
    let_reach(context, exported);
    return;
  }
  const std::shared_ptr<const Opened> opened = opened_table().open(context, exported);
  data_ = opened->base() + exported.offset;
  opened_ = opened;
}

}  // namespace tutti::cuda
