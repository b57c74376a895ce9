// The object behind a CUmemGenericAllocationHandle: a memfd. Its last page describes it, so another
// process needs only its descriptor.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "base/cuda/abi.h"
#include "base/fd.h"

namespace fake_cuda {

inline constexpr size_t kGranularity = size_t{2} << 20;
inline constexpr size_t kMulticastGranularity = size_t{4} << 20;

// A file of a process, identified under /proc.
struct FilePlace {
  pid_t process = 0;
  int file = -1;
  ino_t inode = 0;  // detects that the descriptor was reused for another file
};

tutti::Fd open_place(const FilePlace& place);  // returns an empty Fd if the file no longer exists

// Memory that is bound to a multicast object.
struct Binding {
  std::atomic<uint32_t> is_claimed;
  std::atomic<uint32_t> is_valid;  // written last
  int device;
  FilePlace memory;
  size_t offset;  // offset in the multicast object
  size_t memory_offset;
  size_t size;
};

struct PhysicalHeader {
  uint64_t magic;
  int device;                   // device that owns the memory
  uint32_t handle_types;        // bit mask of CUmemAllocationHandleType
  uint32_t team;                // number of devices of a multicast object; 0: ordinary memory
  size_t size;                  // size of the mappable memory
  std::atomic<uint64_t> added;  // multicast object: bit mask of the devices added so far
  std::array<Binding, 48> bindings;
};
inline constexpr size_t kHeaderBytes = 4096;
static_assert(sizeof(PhysicalHeader) <= kHeaderBytes);

class Physical {
 public:
  // make() wraps a new file, and open() wraps a file that this or another process has created. Both
  // return null if the system refuses or the file is of another kind.
  static std::shared_ptr<Physical> make(int device, size_t size, uint32_t handle_types,
                                        uint32_t team);
  static std::shared_ptr<Physical> open(tutti::Fd file);
  ~Physical();
  Physical(const Physical&) = delete;
  Physical& operator=(const Physical&) = delete;

  PhysicalHeader& header() const { return *header_; }
  bool is_multicast() const { return header_->team > 0; }
  bool has_whole_team() const;
  int file() const { return file_.get(); }
  FilePlace place() const;

  // Binds memory to this multicast object, and keeps the memory until unbind().
  tutti::cuda::CUresult bind(size_t offset, std::shared_ptr<Physical> memory, size_t memory_offset,
                             size_t size);
  tutti::cuda::CUresult unbind(int device, size_t offset, size_t size);

  // Returns the address in this process of memory that any process has bound; null if the memory no
  // longer exists.
  std::byte* member(const Binding& binding);

 private:
  Physical(tutti::Fd file, void* header);

  tutti::Fd file_;
  ino_t inode_;
  PhysicalHeader* header_;
  std::map<Binding*, std::shared_ptr<Physical>> bound_;
  std::map<ino_t, std::pair<std::byte*, size_t>> members_;
};

}  // namespace fake_cuda
