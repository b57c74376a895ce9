#include "tests/support/fake_cuda/physical.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <new>
#include <string>

#include "tests/support/fake_cuda/state.h"

namespace fake_cuda {
namespace {

constexpr uint64_t kMagic = 0x7475'7474'6975'6661;

// Offset of the header: a multicast object has no bytes of its own but is mapped as if it had.
off_t header_at(size_t size) { return static_cast<off_t>(size); }

ino_t inode_of(int file) {
  struct stat status = {};
  return ::fstat(file, &status) == 0 ? status.st_ino : 0;
}

void* map_shared(int file, size_t bytes, off_t offset) {
  void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, offset);
  return at == MAP_FAILED ? nullptr : at;
}

bool overlaps(const Binding& binding, int device, size_t offset, size_t size) {
  return binding.is_valid.load(std::memory_order_acquire) != 0 && binding.device == device &&
         offset < binding.offset + binding.size && binding.offset < offset + size;
}

void clear(Binding& binding) {
  binding.is_valid.store(0, std::memory_order_release);
  binding.is_claimed.store(0, std::memory_order_release);
}

}  // namespace

tutti::Fd open_place(const FilePlace& place) {
  const std::string path =
      "/proc/" + std::to_string(place.process) + "/fd/" + std::to_string(place.file);
  tutti::Fd file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (file && inode_of(file.get()) != place.inode) file.reset();
  return file;
}

Physical::Physical(tutti::Fd file, void* header)
    : file_(std::move(file)),
      inode_(inode_of(file_.get())),
      header_(static_cast<PhysicalHeader*>(header)) {}

std::shared_ptr<Physical> Physical::make(int device, size_t size, uint32_t handle_types,
                                         uint32_t team) {
  tutti::Fd file(::memfd_create("fake_cuda_physical", MFD_CLOEXEC));
  if (!file || ::ftruncate(file.get(), header_at(size + kHeaderBytes)) != 0) return nullptr;
  void* const at = map_shared(file.get(), kHeaderBytes, header_at(size));
  if (at == nullptr) return nullptr;
  auto* const header = new (at) PhysicalHeader{};  // NOLINT: in place
  header->magic = kMagic;
  header->device = device;
  header->handle_types = handle_types;
  header->team = team;
  header->size = size;
  return std::shared_ptr<Physical>(new Physical(std::move(file), at));  // NOLINT: private
}

std::shared_ptr<Physical> Physical::open(tutti::Fd file) {
  struct stat status = {};
  if (::fstat(file.get(), &status) != 0 || status.st_size <= off_t{kHeaderBytes}) return nullptr;
  const off_t at = status.st_size - off_t{kHeaderBytes};
  void* const header = map_shared(file.get(), kHeaderBytes, at);
  if (header == nullptr) return nullptr;
  if (static_cast<PhysicalHeader*>(header)->magic != kMagic) {
    ::munmap(header, kHeaderBytes);
    return nullptr;
  }
  return std::shared_ptr<Physical>(new Physical(std::move(file), header));  // NOLINT: private
}

Physical::~Physical() {
  for (const auto& [binding, memory] : bound_) clear(*binding);
  for (const auto& [inode, mapped] : members_) ::munmap(mapped.first, mapped.second);
  ::munmap(header_, kHeaderBytes);
}

bool Physical::has_whole_team() const {
  return std::popcount(header_->added.load()) == static_cast<int>(header_->team);
}

FilePlace Physical::place() const { return {::getpid(), file_.get(), inode_}; }

CUresult Physical::bind(size_t offset, std::shared_ptr<Physical> memory, size_t memory_offset,
                        size_t size) {
  const int device = memory->header().device;
  for (const Binding& binding : header_->bindings) {
    if (overlaps(binding, device, offset, size)) return CUDA_ERROR_INVALID_VALUE;
  }
  for (Binding& binding : header_->bindings) {
    if (binding.is_claimed.exchange(1) != 0) continue;
    binding.device = device;
    binding.memory = memory->place();
    binding.offset = offset;
    binding.memory_offset = memory_offset;
    binding.size = size;
    binding.is_valid.store(1, std::memory_order_release);
    bound_[&binding] = std::move(memory);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult Physical::unbind(int device, size_t offset, size_t size) {
  const auto found = std::ranges::find_if(bound_, [&](const auto& entry) {
    const Binding& binding = *entry.first;
    return binding.device == device && binding.offset == offset && binding.size == size;
  });
  if (found == bound_.end()) return CUDA_ERROR_INVALID_VALUE;
  clear(*found->first);
  bound_.erase(found);
  return CUDA_SUCCESS;
}

std::byte* Physical::member(const Binding& binding) {
  const auto known = members_.find(binding.memory.inode);
  if (known != members_.end()) return known->second.first;
  const tutti::Fd file = open_place(binding.memory);
  struct stat status = {};
  if (!file || ::fstat(file.get(), &status) != 0) return nullptr;
  const size_t bytes = static_cast<size_t>(status.st_size) - kHeaderBytes;
  void* const at = map_shared(file.get(), bytes, 0);
  if (at == nullptr) return nullptr;
  members_[binding.memory.inode] = {static_cast<std::byte*>(at), bytes};
  return static_cast<std::byte*>(at);
}

}  // namespace fake_cuda
