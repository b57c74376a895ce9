// Tests memory that other ranks read in place: allocation, release, and how other ranks find it.
#include "transport/shm/heap.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "transport/shm/peer_memory.h"

namespace tutti {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kGiB = uint64_t{1} << 30;

// A file that ranks share, mapped in this process.
class SharedFile {
 public:
  explicit SharedFile(uint64_t bytes) {
    static int count = 0;
    name_ = cat("heap-test-", ++count, "-");
    file_ = std::make_shared<const Fd>(::memfd_create(name_.c_str(), MFD_CLOEXEC));
    EXPECT_EQ(::ftruncate(file_->get(), static_cast<off_t>(bytes)), 0);
  }

  const std::shared_ptr<const Fd>& file() const { return file_; }

  uint64_t bytes_in_use() const {
    struct stat status {};
    EXPECT_EQ(::fstat(file_->get(), &status), 0);
    return static_cast<uint64_t>(status.st_blocks) * 512;
  }

  struct Mapped {
    uint64_t bytes = 0;
    uint64_t writable = 0;
  };
  Mapped mapped() const {
    Mapped mapped;
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
      if (line.find(name_) == std::string::npos) continue;
      uint64_t first = 0;
      uint64_t last = 0;
      std::array<char, 5> access{};
      EXPECT_EQ(std::sscanf(line.c_str(), "%lx-%lx %4s", &first, &last, access.data()), 3);
      mapped.bytes += last - first;
      if (access[1] == 'w') mapped.writable += last - first;
    }
    return mapped;
  }

 private:
  std::string name_;
  std::shared_ptr<const Fd> file_;
};

class HeapTest : public ::testing::Test {
 protected:
  std::optional<shm::Place> find(const std::byte* data, size_t bytes) {
    return heap_.find(data, bytes, view_);
  }
  std::byte at_peer(const shm::Place& place) {
    return *peers_.map(place.segment)->at(place.offset);
  }

  SharedFile shared_{kGiB};
  shm::Heap heap_{shared_.file(), {kMiB * 64, kMiB * 64}};
  shm::Heap::View view_;
  shm::PeerMemory peers_{shared_.file()};
};

// Runs `body` in a child process that has only `left` more bytes of address space.
void with_addresses(uint64_t left, const std::function<bool()>& body) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    std::ifstream statm("/proc/self/statm");
    uint64_t pages = 0;
    statm >> pages;
    const rlim_t limit = pages * 4096 + left;
    const rlimit wanted{.rlim_cur = limit, .rlim_max = limit};
    ::_exit(::setrlimit(RLIMIT_AS, &wanted) == 0 && body() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  ASSERT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(HeapTest, UsesMemoryOnlyForAllocationsThatAreTouched) {
  EXPECT_EQ(shared_.bytes_in_use(), 0u);
  std::byte* const first = heap_.allocate(100'000);
  std::byte* const second = heap_.allocate(1);
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 4096, 0u);
  std::memset(first, 1, 100'000);
  EXPECT_GE(shared_.bytes_in_use(), 100'000u);
  heap_.free(first);
  EXPECT_LE(shared_.bytes_in_use(), 4096u);
  std::byte* const again = heap_.allocate(100'000);
  EXPECT_EQ(again, first);
  for (size_t i = 0; i < 100'000; i += 1000) EXPECT_EQ(again[i], std::byte{0});
  heap_.free(again);
  heap_.free(second);
  std::byte* const all = heap_.allocate(64 * kMiB);
  ASSERT_NE(all, nullptr) << "the ranges have not grown together again";
  EXPECT_EQ(heap_.allocate(1), nullptr);
  heap_.free(all);
}

TEST_F(HeapTest, UsesAddressesOnlyForAllocations) {
  EXPECT_EQ(shared_.mapped().bytes, 0u);
  std::vector<std::byte*> pieces;
  for (int i = 0; i < 40; ++i) pieces.push_back(heap_.allocate(kMiB));
  EXPECT_GE(shared_.mapped().bytes, 40 * kMiB);
  EXPECT_LE(shared_.mapped().bytes, 2 * 40 * kMiB);
  for (std::byte* const piece : pieces) heap_.free(piece);
  EXPECT_EQ(shared_.mapped().bytes, 0u);
}

TEST_F(HeapTest, OthersMapMemoryThatTheyReadAndCannotWriteIt) {
  std::byte* const memory = heap_.allocate(8192);
  std::byte* const elsewhere = heap_.allocate(32 * kMiB);
  memory[5000] = std::byte{42};
  const uint64_t own = shared_.mapped().bytes;
  const auto place = find(memory + 5000, 100);
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(at_peer(*place), std::byte{42});
  EXPECT_EQ(shared_.mapped().bytes, own + place->segment.bytes);
  EXPECT_EQ(shared_.mapped().writable, own);
  heap_.free(memory);
  heap_.free(elsewhere);
}

TEST_F(HeapTest, FindsRangesThatAreInOneSegment) {
  EXPECT_FALSE(find(nullptr, 1).has_value());
  std::byte* const memory = heap_.allocate(32 * kMiB);
  std::byte* const more = heap_.allocate(8192);
  EXPECT_TRUE(find(memory, 32 * kMiB).has_value());
  EXPECT_FALSE(find(memory, 64 * kMiB).has_value());
  EXPECT_FALSE(find(memory, SIZE_MAX).has_value());
  EXPECT_TRUE(find(more, 8192).has_value());
  EXPECT_NE(find(memory, 1)->offset, find(more, 1)->offset);
  const std::vector<std::byte> elsewhere(100);
  EXPECT_FALSE(find(elsewhere.data(), 100).has_value());
  heap_.free(memory);
  EXPECT_FALSE(find(memory, 1).has_value());
  heap_.free(more);
}

TEST_F(HeapTest, OthersSeeTheCurrentContents) {
  for (const size_t bytes : {kMiB, 8 * kMiB, kMiB, 32 * kMiB}) {
    std::byte* const memory = heap_.allocate(bytes);
    memory[bytes - 1] = static_cast<std::byte>(bytes / kMiB);
    const auto place = find(memory + bytes - 1, 1);
    ASSERT_TRUE(place.has_value());
    EXPECT_EQ(at_peer(*place), static_cast<std::byte>(bytes / kMiB));
    heap_.free(memory);
  }
}

TEST_F(HeapTest, AdoptsWholePagesAndReturnsThem) {
  constexpr size_t kBytes = 40 * kMiB;  // so long that it is moved in several parts
  std::vector<std::byte> room(kBytes + 4096);
  const size_t into_page = reinterpret_cast<uintptr_t>(room.data()) % 4096;
  // The range starts and ends within a page.
  const std::span<std::byte> memory = std::span(room).subspan(into_page == 0 ? 100 : 0, kBytes);
  for (size_t i = 0; i + sizeof(i) <= kBytes; i += sizeof(i)) {
    std::memcpy(&memory[i], &i, sizeof(i));
  }
  const std::vector<std::byte> before(memory.begin(), memory.end());
  // Compares by memcmp(), because sanitizers and debuggers make a loop over bytes slow.
  const auto is_as_before = [&] { return std::memcmp(memory.data(), before.data(), kBytes) == 0; };
  const uint64_t number = heap_.adopt(memory);
  EXPECT_TRUE(is_as_before());
  EXPECT_FALSE(find(memory.data(), kBytes).has_value()) << "a part of a page at each end is not";
  std::byte* const middle = memory.data() + kBytes / 2;
  const auto place = find(middle, 1000);
  ASSERT_TRUE(place.has_value());
  *middle = std::byte{99};
  EXPECT_EQ(at_peer(*place), std::byte{99});
  heap_.release(number);
  EXPECT_EQ(std::exchange(*middle, before[kBytes / 2]), std::byte{99});
  EXPECT_TRUE(is_as_before());
  EXPECT_FALSE(find(middle, 1000).has_value());
  EXPECT_EQ(shared_.bytes_in_use(), 0u);
  EXPECT_EQ(shared_.mapped().writable, 0u);
}

TEST_F(HeapTest, RefusesMemoryThatIsNotPlain) {
  constexpr size_t kBytes = 16 << 10;
  void* shared = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  EXPECT_THROW(heap_.adopt({static_cast<std::byte*>(shared), kBytes}), Error);
  ASSERT_EQ(::munmap(shared, kBytes), 0);
  EXPECT_THROW(heap_.adopt({static_cast<std::byte*>(shared), kBytes}), Error)
      << "not there any more";
  std::array<std::byte, 64> small{};
  EXPECT_EQ(heap_.adopt(small), 0U) << "no whole page: nothing to do";
  heap_.release(0);
}

// Returns true if all bytes have this value. Uses memcmp(), because sanitizers and debuggers make a
// loop over bytes slow.
bool all_are(std::span<const std::byte> bytes, int value) {
  return bytes.front() == static_cast<std::byte>(value) &&
         std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0;
}

// Private memory that is unmapped when this object is destroyed.
class Pages {
 public:
  explicit Pages(size_t bytes, void* at = nullptr) : bytes_(bytes) {
    const int fixed = at != nullptr ? MAP_FIXED : 0;
    data_ = static_cast<std::byte*>(
        ::mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | fixed, -1, 0));
    EXPECT_NE(data_, MAP_FAILED);
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages() { unmap(); }
  void unmap() {
    if (data_ == nullptr) return;
    EXPECT_EQ(::munmap(std::exchange(data_, nullptr), bytes_), 0);
  }
  std::byte* data() const { return data_; }
  std::span<std::byte> span() const { return {data_, bytes_}; }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_;
};

TEST_F(HeapTest, RefusesLockedMemory) {
  const Pages pages(16 << 10);
  if (::syscall(SYS_mlock, pages.data(), 16 << 10) != 0) {
    GTEST_SKIP() << "no memory may be locked here";
  }
  EXPECT_THROW(heap_.adopt(pages.span()), Error);
  ASSERT_EQ(::syscall(SYS_munlock, pages.data(), 16 << 10), 0);
  const uint64_t number = heap_.adopt(pages.span());
  EXPECT_NE(number, 0U);
  heap_.release(number);
}

TEST_F(HeapTest, AChildOfForkWritesToItsOwnPages) {
  constexpr size_t kBytes = 40 * kMiB;
  std::vector<std::byte> memory(kBytes, std::byte{7});
  const uint64_t number = heap_.adopt(memory);
  with_addresses(kGiB, [&] {
    const bool same = all_are(memory, 7);
    std::memset(memory.data(), 8, memory.size());
    const pid_t grandchild = ::fork();
    if (grandchild == 0) ::_exit(all_are(memory, 8) ? 0 : 1);
    int status = 0;
    ::waitpid(grandchild, &status, 0);
    heap_.release(number);
    return same && WIFEXITED(status) && WEXITSTATUS(status) == 0 && all_are(memory, 8);
  });
  EXPECT_TRUE(all_are(memory, 7));
  const auto place = find(memory.data() + kBytes / 2, 1);
  ASSERT_TRUE(place.has_value());
  memory[kBytes / 2] = std::byte{9};
  EXPECT_EQ(at_peer(*place), std::byte{9}) << "the parent's pages are shared as before";
  heap_.release(number);
}

TEST_F(HeapTest, DetectsMemoryThatWasUnmappedAndReplaced) {
  constexpr size_t kBytes = 4 * kMiB;
  Pages pages(kBytes);
  std::byte* const address = pages.data();
  const uint64_t number = heap_.adopt(pages.span());
  ASSERT_TRUE(find(address, kBytes).has_value());
  EXPECT_TRUE(find(address, kBytes)->adopted);
  EXPECT_TRUE(heap_.still_adopted(pages.span()));
  pages.unmap();
  EXPECT_FALSE(heap_.still_adopted({address, kBytes}));
  const Pages next(kBytes / 2, address);
  EXPECT_FALSE(heap_.still_adopted({address, 1})) << "nothing was written there yet";
  std::memset(next.data(), 5, kBytes / 2);
  EXPECT_FALSE(heap_.still_adopted(next.span()));
  heap_.release(number);
  EXPECT_TRUE(all_are(next.span(), 5));
  EXPECT_EQ(shared_.bytes_in_use(), 0U);
}

TEST_F(HeapTest, AdoptsNewMappingsAtAddressesAdoptedBefore) {
  constexpr size_t kBytes = 4 * kMiB;
  Pages pages(kBytes);
  std::byte* const address = pages.data();
  const uint64_t first = heap_.adopt(pages.span());
  pages.unmap();
  const Pages next(kBytes, address);
  const uint64_t second = heap_.adopt(next.span());
  EXPECT_NE(first, second);
  next.data()[100] = std::byte{42};
  heap_.release(first);
  const auto place = find(address + 100, 1);
  ASSERT_TRUE(place.has_value());
  EXPECT_EQ(at_peer(*place), std::byte{42});
  EXPECT_TRUE(heap_.still_adopted(next.span()));
  heap_.release(second);
  EXPECT_EQ(next.data()[100], std::byte{42});
}

TEST_F(HeapTest, IgnoresMemoryThatItsOwnerHasPartlyUnmapped) {
  constexpr size_t kBytes = 40 * kMiB;
  const Pages pages(kBytes);
  std::memset(pages.data(), 7, kBytes);
  const uint64_t number = heap_.adopt(pages.span());
  const Pages hole(kMiB, pages.data() + 20 * kMiB);
  std::memset(hole.data(), 9, kMiB);
  heap_.release(number);
  EXPECT_TRUE(all_are(pages.span().first(20 * kMiB), 7));
  EXPECT_TRUE(all_are(hole.span(), 9));
  EXPECT_TRUE(all_are(pages.span().subspan(21 * kMiB), 7));
  EXPECT_EQ(shared_.bytes_in_use(), 0U);
  EXPECT_EQ(shared_.mapped().writable, 0U);
}

TEST_F(HeapTest, NothingIsLostIfAddressesAreExhausted) {
  constexpr size_t kBytes = 40 * kMiB;
  std::vector<std::byte> memory(kBytes, std::byte{7});
  with_addresses(8 * kMiB, [&] {
    if (shm::Heap heap(shared_.file(), {0, kMiB * 64}); heap.allocate(32 * kMiB) != nullptr) {
      return false;
    }
    shm::Heap heap(shared_.file(), {0, kMiB * 64});
    try {
      heap.adopt(memory);
      return false;
    } catch (const Error& error) {
      const bool whole = std::ranges::count(memory, std::byte{7}) == kBytes;
      return error.code() == ErrorCode::system && whole && shared_.mapped().bytes == 0;
    }
  });
}

TEST_F(HeapTest, AReleaseThatFailsCanBeRepeated) {
  constexpr size_t kBytes = 40 * kMiB;
  std::vector<std::byte> memory(kBytes, std::byte{7});
  with_addresses(256 * kMiB, [&] {
    shm::Heap heap(shared_.file(), {0, kMiB * 64});
    const uint64_t number = heap.adopt(memory);
    rlimit limit{};
    ::getrlimit(RLIMIT_AS, &limit);
    const rlimit none{.rlim_cur = kMiB, .rlim_max = limit.rlim_max};
    ::setrlimit(RLIMIT_AS, &none);
    try {
      heap.release(number);
      return false;
    } catch (const Error&) {
      ::setrlimit(RLIMIT_AS, &limit);
    }
    const std::span inner = std::span(memory).subspan(kMiB, kBytes - 2 * kMiB);
    if (!heap.still_adopted(inner)) return false;
    heap.release(number);
    const bool whole = std::ranges::count(memory, std::byte{7}) == kBytes;
    return whole && !heap.still_adopted(inner) && heap.allocate(64 * kMiB) != nullptr;
  });
}

TEST_F(HeapTest, OthersReadACopyIfAddressesAreExhausted) {
  std::byte* const memory = heap_.allocate(32 * kMiB);
  memory[12345] = std::byte{42};
  const auto place = find(memory + 12345, 1);
  ASSERT_TRUE(place.has_value());
  with_addresses(8 * kMiB, [&] {
    std::byte value{};
    return peers_.map(place->segment) == nullptr && peers_.read(place->offset, {&value, 1}) == 0 &&
           value == std::byte{42};
  });
  heap_.free(memory);
}

TEST_F(HeapTest, AChildOfForkTakesNothingFromItsParent) {
  std::byte* const memory = heap_.allocate(kMiB);
  std::memset(memory, 5, kMiB);
  with_addresses(kGiB, [&] {
    heap_.free(memory);
    return heap_.allocate(1) == nullptr;
  });
  EXPECT_EQ(std::count(memory, memory + kMiB, std::byte{5}), static_cast<ptrdiff_t>(kMiB));
  heap_.free(memory);
}

// There are a thousand ranks on a host. Their reservations take space in the file, but neither
// memory nor addresses.
TEST(Heaps, ManyRanksHaveMoreRoomThanMachinesHave) {
  constexpr int kRanks = 1000;
  constexpr uint64_t kStart = 12345;
  const SharedFile shared(kStart + shm::bytes_for_heaps(kStart, kRanks));
  shm::PeerMemory peers(shared.file());
  std::vector<std::unique_ptr<shm::Heap>> heaps;
  std::vector<std::byte*> pieces;
  uint64_t end = kStart;
  for (int rank = 0; rank < kRanks; ++rank) {
    const shm::Extent part = shm::part_of_heaps(*shared.file(), kStart, kRanks, rank);
    EXPECT_GE(part.offset, end);
    EXPECT_GE(part.bytes, 4096 * kGiB);
    end = part.end();
    heaps.push_back(std::make_unique<shm::Heap>(shared.file(), part));
    pieces.push_back(heaps.back()->allocate(1));
    ASSERT_NE(pieces.back(), nullptr);
    *pieces.back() = static_cast<std::byte>(rank);
    shm::Heap::View view;
    const auto place = heaps.back()->find(pieces.back(), 1, view);
    ASSERT_TRUE(place.has_value());
    EXPECT_EQ(*peers.map(place->segment)->at(place->offset), static_cast<std::byte>(rank));
  }
  EXPECT_LE(shared.mapped().bytes, 8 * kGiB);
}

TEST(Heaps, ObserveALimitOnFiles) {
  with_addresses(kGiB, [] {
    const auto limit = [](uint64_t bytes) {
      const rlimit wanted{.rlim_cur = bytes, .rlim_max = RLIM_INFINITY};
      return ::setrlimit(RLIMIT_FSIZE, &wanted) == 0;
    };
    if (!limit(100 * kMiB) || shm::bytes_for_heaps(kMiB, 4) > 99 * kMiB ||
        shm::bytes_for_heaps(kMiB, 4) < 90 * kMiB) {
      return false;
    }
    return limit(2 * kMiB) && shm::bytes_for_heaps(kMiB, 4) == 0;
  });
}

}  // namespace
}  // namespace tutti
