#include "transport/shm/region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace tutti::shm {

namespace {

// The payload memory of one rank. Messages of 128 KiB are up to twice as fast as messages of 16 KiB
// (2 ranks, 1 MiB, Zen 4: 60 against 135 us): readers do best on lines that have left the writer's
// L2.
constexpr size_t kArenaBytes = 512 << 10;
constexpr size_t kP2pArenaBytes = 64 << 10;

constexpr size_t round_down(size_t bytes, size_t unit) { return bytes / unit * unit; }

size_t align_page(size_t bytes) { return (bytes + 4095) / 4096 * 4096; }

}  // namespace

// At least one slot for every reader, so that a program may send to everybody at once.
Geometry::Geometry(int ranks, int largest_group)
    : ranks(ranks),
      lanes(largest_group <= 8 ? 4 : 2),
      slots(std::max(8, largest_group - 1)),
      p2p_slots(2),
      slot_bytes(std::max<size_t>(round_down(kArenaBytes / slots, 64), 1024)),
      p2p_slot_bytes(std::clamp<size_t>(
          round_down(kP2pArenaBytes / (size_t{2} * std::max(1, largest_group - 1)), 64), 512,
          16 << 10)) {}

size_t Geometry::doorbell(int rank) const { return sizeof(Header) + rank * sizeof(Doorbell); }

size_t Geometry::acks(int reader, int sender) const {
  return doorbell(ranks) + (static_cast<size_t>(reader) * ranks + sender) * sizeof(Acks);
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

size_t Geometry::total_bytes() const { return arena(ranks); }

Fd Region::create(const Geometry& geometry) {
  Fd memory(::memfd_create("tutti", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory) {
    throw system_error("memfd_create of the shared memory", errno,
                       {.remedy = "set TUTTI_TRANSPORT=tcp to do without shared memory"});
  }
  if (::ftruncate(memory.get(), static_cast<off_t>(geometry.total_bytes())) != 0) {
    throw system_error(cat("ftruncate of the shared memory to ", geometry.total_bytes(), " bytes"),
                       errno, {.cause = "no memory left, or a file size limit (ulimit -f)"});
  }
  ::fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  return memory;
}

std::shared_ptr<Region> Region::map(const Fd& memory, const Geometry& geometry) {
  struct stat status {};
  if (::fstat(memory.get(), &status) != 0) throw system_error("fstat of the shared memory", errno);
  if (static_cast<size_t>(status.st_size) != geometry.total_bytes()) {
    throw Error(ErrorCode::internal, cat("the shared memory has ", status.st_size, " bytes, not ",
                                         geometry.total_bytes()));
  }
  static std::mutex mutex;
  static std::map<std::pair<dev_t, ino_t>, std::weak_ptr<Region>> mapped;
  std::lock_guard lock(mutex);
  std::weak_ptr<Region>& known = mapped[{status.st_dev, status.st_ino}];
  if (std::shared_ptr<Region> region = known.lock()) return region;
  void* base =
      ::mmap(nullptr, geometry.total_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  if (base == MAP_FAILED) {
    throw system_error(cat("mmap of ", geometry.total_bytes(), " bytes of shared memory"), errno,
                       {.cause = "a limit on address space (ulimit -v)"});
  }
  std::erase_if(mapped, [](const auto& entry) { return entry.second.expired(); });
  auto region = std::make_shared<Region>(base, geometry.total_bytes());
  mapped[{status.st_dev, status.st_ino}] = region;
  return region;
}

Region::~Region() { ::munmap(base_, bytes_); }

}  // namespace tutti::shm
