#include "transport/shm/heap.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace tutti::shm {

namespace {

// Alignment of segments in the file, chosen so that the system may use huge pages.
constexpr uint64_t kUnit = uint64_t{2} << 20;
// Maximum size of a part. It exceeds any memory; untouched pages cost nothing.
constexpr uint64_t kMostPart = uint64_t{8} << 40;
// Maximum length of a segment of allocate(). A new segment is as long as all earlier ones together,
// up to this length, so that there are few segments.
constexpr uint64_t kLongestSegment = uint64_t{1} << 30;
// Size of the pieces in which pages are moved. While a piece is being moved, it is in memory twice,
// so pieces are small.
constexpr size_t kMovedAtOnce = size_t{16} << 20;

constexpr uint64_t round_up(uint64_t bytes, uint64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// Returns the whole pages within the range.
std::span<std::byte> whole_pages(std::span<std::byte> range) {
  const auto start = reinterpret_cast<uintptr_t>(range.data());
  const uint64_t first = round_up(start, page_bytes());
  const uint64_t last = (start + range.size()) / page_bytes() * page_bytes();
  if (last <= first) return {};
  return {reinterpret_cast<std::byte*>(first), last - first};
}

}  // namespace

uint64_t bytes_for_heaps(uint64_t start, int ranks) {
  const auto parts = static_cast<uint64_t>(ranks);
  uint64_t most = parts * kMostPart;
  rlimit limit{};
  // The limit is checked here, because exceeding it raises a fatal signal instead of an error.
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    const uint64_t first = round_up(start, kUnit);
    most = std::min(most, limit.rlim_cur - std::min<uint64_t>(limit.rlim_cur, first));
  }
  const uint64_t part = most / parts / kUnit * kUnit;
  return part == 0 ? 0 : round_up(start, kUnit) - start + parts * part;
}

Extent part_of_heaps(const Fd& file, uint64_t start, int ranks, int rank) {
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) throw system_error("fstat of the shared memory", errno);
  const auto end = static_cast<uint64_t>(status.st_size);
  const uint64_t first = round_up(start, kUnit);
  if (end <= first) return {};
  const uint64_t part = (end - first) / static_cast<uint64_t>(ranks) / kUnit * kUnit;
  return {first + static_cast<uint64_t>(rank) * part, part};
}

// ---- fork

// All heaps of the process.
class HeapsAtFork {
 public:
  static void add(Heap* heap) {
    static const int registered = ::pthread_atfork(before, after, in_child);
    static_cast<void>(registered);
    const std::lock_guard lock(mutex());
    heaps().push_back(heap);
  }
  static void remove(Heap* heap) {
    const std::lock_guard lock(mutex());
    std::erase(heaps(), heap);
  }

 private:
  static std::mutex& mutex() {
    static auto& instance = *new std::mutex();  // NOLINT: fork() may be called at any time
    return instance;
  }
  static std::vector<Heap*>& heaps() {
    static auto& instance = *new std::vector<Heap*>();  // NOLINT
    return instance;
  }
  static void before() {
    mutex().lock();
    for (Heap* const heap : heaps()) heap->before_fork();
  }
  static void after() {
    for (Heap* const heap : heaps()) heap->after_fork();
    mutex().unlock();
  }
  static void in_child() {
    for (Heap* const heap : heaps()) heap->in_child();
    after();
  }
};

// Holds the lock during fork(), so that no memory is adopted or moved back while the process is
// copied. In a child of an earlier fork() the pages are already private.
void Heap::before_fork() {
  mutex_.lock();
  if (!mine()) return;
  for (const auto& [number, adopted] : adopted_) {
    for (const std::span<std::byte> part : parts_of_file(adopted.pages, *file_, adopted.offset)) {
      const auto before = static_cast<uint64_t>(part.data() - adopted.pages.data());
      of_child_.push_back({.pages = part, .offset = adopted.offset + before});
    }
  }
}

void Heap::after_fork() {
  of_child_.clear();
  mutex_.unlock();
}

// Makes the child's pages copy-on-write, as other private memory is.
void Heap::in_child() {
  for (const Adopted& part : of_child_) {
    ::mmap(part.pages.data(), part.pages.size(), PROT_READ | PROT_WRITE,
           MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, file_->get(), static_cast<off_t>(part.offset));
  }
}

// ---- the file

Heap::Heap(std::shared_ptr<const Fd> file, const Extent& part)
    : file_(std::move(file)), owner_(::getpid()), free_(part) {
  HeapsAtFork::add(this);
}

Heap::~Heap() {
  HeapsAtFork::remove(this);
  for (const auto& [offset, segment] : segments_) {
    ::munmap(segment.base, segment.free.all().bytes);
    clear(segment.free.all());
  }
}

// Maps part of the file. Returns null on failure.
std::byte* Heap::map(const Extent& extent) const {
  void* const base =
      ::mmap(nullptr, extent.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
             file_->get(), static_cast<off_t>(extent.offset));
  if (base == MAP_FAILED) return nullptr;
  // This has an effect if the system allows huge pages of shared memory.
  ::madvise(base, extent.bytes, MADV_HUGEPAGE);
  return static_cast<std::byte*>(base);
}

// Returns true in the process that created the heap. A forked child has only a copy of this
// bookkeeping, and must not free memory that its parent still uses.
bool Heap::mine() const { return ::getpid() == owner_; }

// Returns the pages to the system at once, even if others have mapped them.
void Heap::clear(const Extent& extent) const {
  if (!mine()) return;
  ::fallocate(file_->get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
              static_cast<off_t>(extent.offset), static_cast<off_t>(extent.bytes));
}

// ---- allocated memory

// Adds a segment. If the address space is nearly full, the segment is no larger than needed.
Heap::Segment* Heap::add_segment(uint64_t bytes) {
  const uint64_t least = round_up(bytes, kUnit);
  for (const uint64_t length : {std::max(least, std::min(mapped_, kLongestSegment)), least}) {
    const std::optional<Extent> extent = free_.take(length);
    if (!extent) continue;
    if (std::byte* const base = map(*extent)) {
      mapped_ += length;
      changed();
      return &segments_.try_emplace(extent->offset, Segment{base, FreeExtents(*extent)})
                  .first->second;
    }
    free_.give_back(*extent);
  }
  return nullptr;
}

std::byte* Heap::allocate(size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (!mine() || bytes > free_.all().bytes) return nullptr;
  const uint64_t length = round_up(std::max<size_t>(bytes, 1), page_bytes());
  const auto take = [&](Segment& segment) -> std::byte* {
    const std::optional<Extent> extent = segment.free.take(length);
    if (!extent) return nullptr;
    std::byte* const data = segment.at(extent->offset);
    allocated_[data] = {segment.free.all().offset, *extent};
    return data;
  };
  for (auto& [offset, segment] : segments_) {
    if (std::byte* const data = take(segment)) return data;
  }
  Segment* const segment = add_segment(length);
  return segment != nullptr ? take(*segment) : nullptr;
}

void Heap::free(std::byte* data) {
  const std::lock_guard lock(mutex_);
  const auto found = allocated_.find(data);
  if (found == allocated_.end()) return;
  const Piece piece = found->second;
  allocated_.erase(found);
  clear(piece.extent);
  const auto segment = segments_.find(piece.segment);
  FreeExtents& free = segment->second.free;
  free.give_back(piece.extent);
  if (!free.whole()) return;
  ::munmap(segment->second.base, free.all().bytes);
  mapped_ -= free.all().bytes;
  free_.give_back(free.all());
  segments_.erase(segment);
  changed();
}

// ---- the caller's memory

void Heap::move_in(std::span<std::byte> pages, uint64_t offset) const {
  std::byte* const copy = map({offset, pages.size()});
  const int error = errno;
  if (copy == nullptr) {
    throw system_error(cat("cannot map ", pages.size(), " bytes of a registered buffer"), error,
                       {.cause = "the address space is limited (ulimit -v)"});
  }
  std::memcpy(copy, pages.data(), pages.size());
  if (::mremap(copy, pages.size(), pages.size(), MREMAP_MAYMOVE | MREMAP_FIXED, pages.data()) ==
      MAP_FAILED) {
    const int why = errno;
    ::munmap(copy, pages.size());
    throw system_error("cannot replace the pages of a registered buffer", why);
  }
}

void Heap::move_out(std::span<std::byte> pages) {
  void* const copy =
      ::mmap(nullptr, pages.size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (copy == MAP_FAILED) {
    throw system_error("cannot allocate private memory for a deregistered buffer", errno);
  }
  std::memcpy(copy, pages.data(), pages.size());
  if (::mremap(copy, pages.size(), pages.size(), MREMAP_MAYMOVE | MREMAP_FIXED, pages.data()) ==
      MAP_FAILED) {
    const int error = errno;
    ::munmap(copy, pages.size());
    throw system_error("cannot restore the pages of a registered buffer", error);
  }
}

// Ends earlier adoptions of these addresses. Memory that is adopted now was private, so the memory
// of the earlier adoption has been unmapped.
void Heap::forget_unmapped(std::span<const std::byte> pages) {
  for (auto& [number, old] : adopted_) {
    const bool overlaps = old.pages.data() < pages.data() + pages.size() &&
                          pages.data() < old.pages.data() + old.pages.size();
    if (overlaps) old.unmapped = true;
  }
}

uint64_t Heap::adopt(std::span<std::byte> range) {
  const std::span<std::byte> pages = whole_pages(range);
  if (pages.empty()) return 0;
  if (!is_plain_memory(pages)) {
    throw Error(
        ErrorCode::invalid_argument, "the buffer cannot be registered",
        {.cause = "the buffer is not plain private memory: it is a file, a stack, already shared, "
                  "locked, or not mapped",
         .remedy = "use memory from malloc() or new, or from the communicator; lock or pin "
                   "it after the registration"});
  }
  if (!mine()) {
    throw Error(ErrorCode::unsupported, "the communicator was created before fork()",
                {.remedy = "register buffers in the parent only, or exec() a new program"});
  }
  const std::lock_guard lock(mutex_);
  const std::optional<Extent> place = free_.take(round_up(pages.size(), kUnit));
  if (!place) {
    throw Error(ErrorCode::system, cat("no room to register ", pages.size(), " bytes"),
                {.cause = cat("a rank can share at most ", free_.all().bytes,
                              " bytes; a limit on file sizes (ulimit -f) reduces that")});
  }
  size_t moved = 0;
  try {
    for (; moved < pages.size(); moved += std::min(kMovedAtOnce, pages.size() - moved)) {
      const size_t bytes = std::min(kMovedAtOnce, pages.size() - moved);
      move_in(pages.subspan(moved, bytes), place->offset + moved);
    }
  } catch (const Error&) {
    if (moved > 0) move_out(pages.first(moved));
    clear(*place);
    free_.give_back(*place);
    throw;
  }
  forget_unmapped(pages);
  adopted_[++adoptions_] = {.pages = pages, .offset = place->offset};
  changed();
  return adoptions_;
}

void Heap::release(uint64_t number) {
  const std::lock_guard lock(mutex_);
  const auto found = adopted_.find(number);
  if (found == adopted_.end()) return;
  const Adopted adopted = found->second;
  for (const std::span<std::byte> part : parts_of_file(adopted.pages, *file_, adopted.offset)) {
    for (size_t moved = 0; moved < part.size();) {
      const size_t bytes = std::min(kMovedAtOnce, part.size() - moved);
      move_out(part.subspan(moved, bytes));
      clear({adopted.offset + static_cast<uint64_t>(part.data() - adopted.pages.data()) + moved,
             bytes});
      moved += bytes;
    }
  }
  adopted_.erase(found);
  changed();
  const Extent place{adopted.offset, round_up(adopted.pages.size(), kUnit)};
  clear(place);
  free_.give_back(place);
}

// ---- room for other uses

std::optional<Extent> Heap::take_room(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  return mine() ? free_.take(round_up(bytes, kUnit)) : std::nullopt;
}

void Heap::release_room(const Extent& room) {
  const std::lock_guard lock(mutex_);
  clear(room);
  free_.give_back(room);
}

// ---- lookup

void Heap::refresh(View& view) const {
  const std::lock_guard lock(mutex_);
  view.version = version_.load(std::memory_order_relaxed);
  view.entries.clear();
  for (const auto& [offset, segment] : segments_) {
    view.entries.push_back({segment.base, segment.free.all(), false});
  }
  for (const auto& [number, adopted] : adopted_) {
    if (adopted.unmapped) continue;
    view.entries.push_back({adopted.pages.data(), {adopted.offset, adopted.pages.size()}, true});
  }
  std::ranges::sort(view.entries, {}, &View::Entry::data);
}

std::optional<Place> Heap::find(const std::byte* data, size_t bytes, View& view) const {
  if (view.version != version_.load(std::memory_order_acquire)) refresh(view);
  const auto after = std::ranges::upper_bound(view.entries, data, {}, &View::Entry::data);
  if (after == view.entries.begin()) return std::nullopt;
  const auto& [start, segment, adopted] = *std::prev(after);
  const auto before = static_cast<uint64_t>(data - start);
  if (before > segment.bytes || bytes > segment.bytes - before) return std::nullopt;
  return Place{segment.offset + before, segment, adopted};
}

}  // namespace tutti::shm
