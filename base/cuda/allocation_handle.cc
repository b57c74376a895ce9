// Passes memory between processes. Descriptors are transferred by pidfd_getfd (Linux 5.6): the
// exported bytes name a process and its descriptor. Opening /proc/PID/fd/N instead would open
// NVIDIA's device again, without the memory.
#include "base/cuda/allocation_handle.h"

#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "base/cuda/api.h"
#include "base/cuda/memory.h"
#include "base/error.h"
#include "base/text.h"

namespace tutti::cuda {
namespace {

// The content of a ShareableHandle that names a file descriptor.
struct DescriptorPlace {
  uint64_t process;        // result of this_process()
  uint64_t serial;         // serial number of the export, because descriptor numbers are reused
  uint64_t pid_namespace;  // the namespace in which `pid` is valid
  int32_t pid;
  int32_t descriptor;
};
static_assert(sizeof(DescriptorPlace) <= CU_IPC_HANDLE_SIZE);

uint64_t pid_namespace() {
  struct stat status = {};
  return ::stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

Fd take_descriptor(int pid, int descriptor) {
  const Fd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!process) return {};
  return Fd(static_cast<int>(::syscall(SYS_pidfd_getfd, process.get(), descriptor, 0)));
}

// Returns true if this process can take descriptors of others. Yama forbids access between
// unrelated processes; seccomp may forbid the system call.
bool descriptors_can_be_taken() {
  int scope = 0;
  std::ifstream("/proc/sys/kernel/yama/ptrace_scope") >> scope;
  const Fd own(::memfd_create("tutti", MFD_CLOEXEC));
  return scope == 0 && take_descriptor(::getpid(), own.get());
}

Fd fetch(const DescriptorPlace& place) {
  const std::string what = cat("cannot import GPU memory of process ", place.pid);
  if (place.pid_namespace != pid_namespace()) {
    throw Error(ErrorCode::unsupported, what,
                {.cause = "the process runs in another PID namespace (container)",
                 .remedy = "run the ranks of a host in one container, or with --pid=host"});
  }
  if (Fd fetched = take_descriptor(place.pid, place.descriptor)) return fetched;
  if (errno == ESRCH || errno == EBADF) {
    throw Error(
        ErrorCode::connection_lost, what,
        {.cause = "the process exited, or freed the memory before all ranks had imported it"});
  }
  throw system_error(what, errno,
                     {.cause = "a security module or sandbox forbids pidfd_getfd, or this process "
                               "reached its limit of open files",
                      .remedy = "allow ptrace between the processes (kernel.yama.ptrace_scope=0, "
                                "--cap-add=SYS_PTRACE), or raise ulimit -n"});
}

CUmemAccessDesc read_write(int device) {
  return {.location = {CU_MEM_LOCATION_TYPE_DEVICE, device},
          .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
}

}  // namespace

uint64_t this_process() {
  static const uint64_t number = [] {
    uint64_t random = 0;
    if (::getrandom(&random, sizeof random, 0) != sizeof random) {
      throw system_error("getrandom", errno);
    }
    return random | 1;
  }();
  return number;
}

AllocationHandle::AllocationHandle(const Context& context, CUmemGenericAllocationHandle made)
    : handle_(made), release_(freed_in(context, [made] { api().mem_release.result(made); })) {}

std::vector<Sharing> sharings_of(int device) {
  static const bool descriptors = descriptors_can_be_taken();
  const DeviceInfo info = device_info(device);
  std::vector<Sharing> sharings;
  if (info.has_virtual_memory && info.has_fabric_handles) sharings.push_back(Sharing::fabric);
  if (info.has_virtual_memory && info.has_file_descriptors && descriptors) {
    sharings.push_back(Sharing::descriptor);
  }
  return sharings;
}

AllocationHandle handle_of(const Context& context, const void* mapped) {
  const CurrentContext current(context);
  CUmemGenericAllocationHandle handle = 0;
  const CUresult result =
      api().mem_retain_allocation_handle.result(&handle, const_cast<void*>(mapped));
  return result == CUDA_SUCCESS ? AllocationHandle(context, handle) : AllocationHandle();
}

std::vector<Sharing> sharings_of(const AllocationHandle& handle) {
  CUmemAllocationProp properties = {};
  api().mem_get_allocation_properties(&properties, handle.get());
  const auto has = [&](Sharing sharing) {
    return (properties.requestedHandleTypes & handle_type(sharing)) != 0;
  };
  std::vector<Sharing> sharings;
  for (const Sharing sharing : {Sharing::fabric, Sharing::descriptor}) {
    if (has(sharing)) sharings.push_back(sharing);
  }
  return sharings;
}

CUmemAllocationHandleType handle_type(Sharing sharing) {
  return sharing == Sharing::fabric ? CU_MEM_HANDLE_TYPE_FABRIC
                                    : CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
}

bool is_refused(CUresult result) {
  return result == CUDA_ERROR_NOT_PERMITTED || result == CUDA_ERROR_NOT_SUPPORTED;
}

ExportedHandle::ExportedHandle(const AllocationHandle& handle, Sharing sharing)
    : shareable_{.sharing = sharing} {
  if (sharing == Sharing::fabric) {
    api().mem_export_to_shareable_handle(shareable_.bytes.data(), handle.get(),
                                         CU_MEM_HANDLE_TYPE_FABRIC, 0);
    return;
  }
  int descriptor = -1;
  api().mem_export_to_shareable_handle(&descriptor, handle.get(),
                                       CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
  descriptor_ = Fd(descriptor);
  static std::atomic<uint64_t> exports{0};
  const DescriptorPlace place{.process = this_process(),
                              .serial = ++exports,
                              .pid_namespace = pid_namespace(),
                              .pid = ::getpid(),
                              .descriptor = descriptor};
  std::memcpy(shareable_.bytes.data(), &place, sizeof place);
}

AllocationHandle import_handle(const Context& context, const ShareableHandle& shareable) {
  const CurrentContext current(context);
  CUmemGenericAllocationHandle imported = 0;
  if (shareable.sharing == Sharing::fabric) {
    CUmemFabricHandle fabric;
    std::memcpy(fabric.data, shareable.bytes.data(), sizeof fabric.data);
    api().mem_import_from_shareable_handle(&imported, &fabric, CU_MEM_HANDLE_TYPE_FABRIC);
    return {context, imported};
  }
  DescriptorPlace place;
  std::memcpy(&place, shareable.bytes.data(), sizeof place);
  const Fd fetched = fetch(place);  // the driver keeps its own reference
  const auto as_pointer = reinterpret_cast<void*>(static_cast<intptr_t>(fetched.get()));
  api().mem_import_from_shareable_handle(&imported, as_pointer,
                                         CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  return {context, imported};
}

Mapping::Mapping(const Context& context, const AllocationHandle& handle, size_t bytes,
                 size_t alignment) {
  const CurrentContext current(context);
  CUdeviceptr reserved = 0;
  api().mem_address_reserve(&reserved, bytes, alignment, 0, 0);
  free_ = freed_in(context, [=] {
    api().ctx_synchronize.result();
    api().mem_unmap.result(reserved, bytes);  // returns an error if nothing was mapped
    api().mem_address_free.result(reserved, bytes);
  });
  api().mem_map(reserved, bytes, 0, handle.get(), 0);
  data_ = pointer(reserved);
  allow_access(context, data_, bytes);
}

void allow_access(const Context& context, const void* mapped, size_t bytes) {
  const CurrentContext current(context);
  const CUmemAccessDesc access = read_write(context.ordinal());
  api().mem_set_access(address(mapped), bytes, &access, 1);
}

}  // namespace tutti::cuda
