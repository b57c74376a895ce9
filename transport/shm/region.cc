#include "transport/shm/region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <mutex>
#include <tuple>

#include "base/error.h"
#include "base/process_limits.h"
#include "base/text.h"

namespace tutti::shm {

namespace {

// Slots are fastest if all of them fit into the second-level caches of sender and reader, but
// messages of 16 KiB are slower than longer ones.
constexpr size_t kMostSlotBytes = 512 << 10;  // all slots of a rank together
constexpr size_t kP2pArenaBytes = 64 << 10;

constexpr size_t round_down(size_t bytes, size_t unit) { return bytes / unit * unit; }

constexpr size_t kPage = 4096;

size_t align_page(size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// Returns the minimum size of a slot. With more ranks than most_bytes() allows for, a slot holds
// one value of each rank, so that programs with few messages stay possible. Such arenas are large,
// but untouched pages use no memory, and the slot released last is reused first.
size_t least_slot_bytes(int largest_group) {
  constexpr int kManyRanks = 128;
  if (largest_group <= kManyRanks) return 512;
  constexpr size_t kValueBytes = 8;
  return std::max(kPage, align_page(static_cast<size_t>(largest_group) * kValueBytes));
}

}  // namespace

size_t most_bytes(int ranks) {
  return (size_t{1} << 20) + static_cast<size_t>(ranks) * (size_t{256} << 10);
}

// Chooses the sizes. There is at least one slot per reader, so that a program may send to all ranks
// at once. A message has room for the longest element (base/dtype.h).
Geometry::Geometry(int ranks, int largest_group)
    : ranks(ranks),
      lanes(largest_group <= 8 ? 4 : (largest_group <= 64 ? 2 : 1)),
      slots(std::max(8, largest_group - 1)),
      p2p_slots(2),
      slot_bytes(0),
      p2p_slot_bytes(std::clamp<size_t>(
          round_down(kP2pArenaBytes / (size_t{2} * std::max(1, largest_group - 1)), 64), 320,
          16 << 10)) {
  // The memory that is left is shared equally among the ranks of the largest group.
  Geometry largest = *this;
  largest.ranks = largest_group;
  const size_t most = most_bytes(largest_group);
  const size_t rest = most - std::min(most, largest.total_bytes());
  const size_t each = rest / static_cast<size_t>(largest_group);
  const size_t arena = std::min(each - std::min<size_t>(each, kPage), kMostSlotBytes);
  slot_bytes =
      std::max(round_down(arena / static_cast<size_t>(slots), 64), least_slot_bytes(largest_group));
}

size_t Geometry::doorbell(int rank) const { return sizeof(Header) + rank * sizeof(Doorbell); }

size_t Geometry::lender(int rank) const { return doorbell(ranks) + rank * sizeof(Lender); }

size_t Geometry::acks(int reader, int sender) const {
  return sizeof(Header) + ranks * (sizeof(Doorbell) + sizeof(Lender)) +
         (static_cast<size_t>(reader) * ranks + sender) * sizeof(Acks);
}

size_t Geometry::cells(int sender, int reader, int lane) const {
  const size_t connection = (static_cast<size_t>(sender) * ranks + reader) * (lanes + 1) + lane;
  return acks(ranks, 0) + connection * kCells * sizeof(Cell);
}

size_t Geometry::arena(int sender) const {
  const size_t bytes = slots * slot_bytes + p2p_slots * p2p_slot_bytes * ranks;
  return align_page(cells(ranks, 0, 0)) + sender * align_page(bytes);
}

size_t Geometry::slot(int sender, int slot) const { return arena(sender) + slot * slot_bytes; }

size_t Geometry::p2p_slot(int sender, int reader, int slot) const {
  return arena(sender) + slots * slot_bytes +
         (static_cast<size_t>(reader) * p2p_slots + slot) * p2p_slot_bytes;
}

Limits Geometry::limits() const {
  return Limits::of_one_path(lanes, slots, {slot_bytes, p2p_slot_bytes});
}

size_t Geometry::total_bytes() const { return arena(ranks); }

Fd Region::create(const Geometry& geometry, uint64_t heap_bytes) {
  Fd memory(::memfd_create("tutti", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory) {
    throw system_error("memfd_create of the shared memory", errno,
                       {.remedy = "set TUTTI_TRANSPORT=tcp to run without shared memory"});
  }
  const auto resize = [&](uint64_t bytes) {
    if (!exceeds_file_limit(bytes))
      return ::ftruncate(memory.get(), static_cast<off_t>(bytes)) == 0;
    errno = EFBIG;  // as ftruncate() would, but there SIGXFSZ would kill the process
    return false;
  };
  if (!resize(geometry.total_bytes() + heap_bytes) && !resize(geometry.total_bytes())) {
    const int reason = errno;
    throw system_error(cat("ftruncate of the shared memory to ", geometry.total_bytes(), " bytes"),
                       reason, reason == EFBIG ? file_size_detail() : memory_detail());
  }
  ::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  return memory;
}

std::shared_ptr<Region> Region::map(const Fd& memory, const Geometry& geometry, uint64_t offset) {
  const size_t bytes = geometry.total_bytes();
  struct stat status {};
  if (::fstat(memory.get(), &status) != 0) throw system_error("fstat of the shared memory", errno);
  if (static_cast<uint64_t>(status.st_size) < offset + bytes) {
    throw Error(ErrorCode::internal, cat("the shared memory has ", status.st_size,
                                         " bytes instead of ", offset + bytes));
  }
  static std::mutex mutex;
  static std::map<std::tuple<dev_t, ino_t, uint64_t>, std::weak_ptr<Region>> mapped;
  std::lock_guard lock(mutex);
  const std::tuple place(status.st_dev, status.st_ino, offset);
  const std::shared_ptr<Region> known = mapped[place].lock();
  if (known != nullptr && known->bytes() == bytes) return known;
  void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(),
                      static_cast<off_t>(offset));
  if (base == MAP_FAILED) {
    throw system_error(cat("mmap of ", bytes, " bytes of shared memory"), errno,
                       {.cause = "the address space is limited (ulimit -v)"});
  }
  std::erase_if(mapped, [](const auto& entry) { return entry.second.expired(); });
  auto region = std::make_shared<Region>(base, bytes);
  mapped[place] = region;
  return region;
}

Region::~Region() { ::munmap(base_, bytes_); }

}  // namespace tutti::shm
