// Memory that others read in place: how it is handed out and taken back, and messages that lend it.
#include "transport/shm/heap.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <vector>

#include "base/error.h"
#include "transport/shm/shm_transport.h"

namespace tutti {
namespace {

uint64_t bytes_in_use(const shm::Heap& heap) {
  struct stat status {};
  EXPECT_EQ(::fstat(heap.fd(), &status), 0);
  return static_cast<uint64_t>(status.st_blocks) * 512;
}

TEST(Heap, TakesMemoryOnlyForWhatIsHandedOutAndTouched) {
  shm::Heap heap;
  EXPECT_EQ(bytes_in_use(heap), 0u);
  std::byte* const first = heap.allocate(100'000);
  std::byte* const second = heap.allocate(1);
  ASSERT_NE(first, nullptr);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 4096, 0u);
  std::memset(first, 1, 100'000);
  EXPECT_GE(bytes_in_use(heap), 100'000u);
  heap.free(first);
  EXPECT_LE(bytes_in_use(heap), 4096u);
  std::byte* const again = heap.allocate(100'000);
  EXPECT_EQ(again, first);
  for (size_t i = 0; i < 100'000; i += 1000) EXPECT_EQ(again[i], std::byte{0});
  heap.free(again);
  heap.free(second);
  EXPECT_NE(heap.allocate(heap.bytes()), nullptr) << "the ranges have not grown together again";
  EXPECT_EQ(heap.allocate(1), nullptr);
}

TEST(Heap, FindsWhatIsInItWhole) {
  shm::Heap heap;
  std::byte* const memory = heap.allocate(8192);
  const shm::PeerHeap peer{Fd(::dup(heap.fd()))};
  memory[5000] = std::byte{42};
  const auto offset = heap.find(memory + 5000, 100);
  ASSERT_TRUE(offset.has_value());
  EXPECT_EQ(*peer.at(*offset), std::byte{42});
  std::vector<std::byte> elsewhere(100);
  EXPECT_FALSE(heap.find(elsewhere.data(), 100).has_value());
}

TEST(Heap, AdoptsWholePagesAndGivesThemBack) {
  shm::Heap heap;
  constexpr size_t kBytes = 64 << 10;
  std::vector<std::byte> room(kBytes + 4096);
  const size_t into_page = reinterpret_cast<uintptr_t>(room.data()) % 4096;
  // Starts and ends within a page.
  const std::span<std::byte> memory = std::span(room).subspan(into_page == 0 ? 100 : 0, kBytes);
  for (size_t i = 0; i < kBytes; ++i) memory[i] = static_cast<std::byte>(i * 7);
  const std::vector<std::byte> before(memory.begin(), memory.end());
  heap.adopt(memory);
  EXPECT_TRUE(std::ranges::equal(memory, before));
  EXPECT_FALSE(heap.find(memory.data(), kBytes).has_value())
      << "a part of a page at each end is not";
  std::byte* const middle = memory.data() + kBytes / 2;
  const auto offset = heap.find(middle, 1000);
  ASSERT_TRUE(offset.has_value());
  const shm::PeerHeap peer{Fd(::dup(heap.fd()))};
  *middle = std::byte{99};
  EXPECT_EQ(*peer.at(*offset), std::byte{99});
  heap.release(memory);
  EXPECT_EQ(*middle, std::byte{99});
  EXPECT_EQ(memory.front(), before.front());
  EXPECT_EQ(memory.back(), before.back());
  EXPECT_FALSE(heap.find(middle, 1000).has_value());
  EXPECT_EQ(bytes_in_use(heap), 0u);
}

TEST(Heap, RefusesWhatIsNotPlainMemory) {
  shm::Heap heap;
  constexpr size_t kBytes = 16 << 10;
  void* shared = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  EXPECT_THROW(heap.adopt({static_cast<std::byte*>(shared), kBytes}), Error);
  ASSERT_EQ(::munmap(shared, kBytes), 0);
  EXPECT_THROW(heap.adopt({static_cast<std::byte*>(shared), kBytes}), Error)
      << "not there any more";
  std::array<std::byte, 64> small{};
  EXPECT_NO_THROW(heap.adopt(small)) << "no whole page: nothing to do";
  heap.release(small);
}

class Lending : public ::testing::Test {
 protected:
  Lending() {
    const shm::Geometry geometry(3, 3);
    const Fd memory = shm::Region::create(geometry);
    for (int r = 0; r < 3; ++r) {
      ranks_.push_back(
          std::make_unique<ShmTransport>(r, shm::Region::map(memory, geometry), geometry));
      ranks_.back()->use({.own = [this, r] { return r == 0 ? &heap_ : nullptr; },
                          .of = [this](int) { return &peer_; }});
    }
  }

  shm::Heap heap_;
  shm::PeerHeap peer_{Fd(::dup(heap_.fd()))};
  std::vector<std::unique_ptr<ShmTransport>> ranks_;
};

TEST_F(Lending, ReadersSeeTheSendersMemoryAndItComesBackWhenAllHaveReadIt) {
  constexpr size_t kBytes = 10'000;
  std::byte* const data = heap_.allocate(kBytes);
  std::memset(data, 7, kBytes);
  const std::array peers = {1, 2};
  const std::span<const std::byte> payload(data, kBytes);
  ASSERT_TRUE(ranks_[0]->can_lend(peers, payload));
  const int loan = ranks_[0]->lend(peers, 0, {.call = 1, .bytes = kBytes}, payload, true);
  ASSERT_GE(loan, 0);
  data[123] = std::byte{8};  // not copied: what is written now is seen
  EXPECT_FALSE(ranks_[0]->take_back(loan));
  for (const int reader : peers) {
    ASSERT_NE(ranks_[reader]->front(0, 0), nullptr);
    EXPECT_EQ(ranks_[reader]->payload(0, 0)[123], std::byte{8});
    EXPECT_FALSE(ranks_[0]->take_back(loan));
    ranks_[reader]->release(0, 0);
  }
  EXPECT_TRUE(ranks_[0]->take_back(loan));
  for (size_t i = 0; i < kBytes; ++i)
    EXPECT_EQ(std::to_integer<int>(data[i]), i == 123 ? 8 : 7) << i;
}

TEST_F(Lending, TakingLinesOverChangesNothing) {
  constexpr size_t kBytes = 10'000;
  std::byte* const data = heap_.allocate(kBytes);
  for (size_t i = 0; i < kBytes; ++i) data[i] = static_cast<std::byte>(i * 3);
  const std::vector<std::byte> before(data, data + kBytes);
  const std::array peers = {1};
  for (int turn = 1; turn <= 20; ++turn) {  // more than a connection holds at a time
    const int loan = ranks_[0]->lend(peers, 0, {.call = 1, .bytes = 9999}, {data + 1, 9999}, true);
    ASSERT_GE(loan, 0);
    std::vector<std::byte> received(9999);
    ASSERT_NE(ranks_[1]->front(0, 0), nullptr);
    ASSERT_TRUE(ranks_[1]->read(0, 0, received, Store::cached));
    ranks_[1]->release(0, 0);
    ASSERT_TRUE(ranks_[0]->take_back(loan));
    EXPECT_EQ(std::memcmp(received.data(), before.data() + 1, 9999), 0);
  }
  EXPECT_EQ(std::memcmp(data, before.data(), kBytes), 0);
}

TEST_F(Lending, WaitsWhereTheConnectionIsFull) {
  std::byte* const data = heap_.allocate(4096);
  const std::array peers = {1};
  std::vector<int> loans;
  for (int loan = 0; loan >= 0;) {
    loan = ranks_[0]->lend(peers, 0, {.call = 1, .bytes = 4096}, {data, 4096}, false);
    if (loan >= 0) loans.push_back(loan);
  }
  EXPECT_EQ(loans.size(), shm::kCells);
  ranks_[1]->release(0, 0);
  EXPECT_TRUE(ranks_[0]->take_back(loans[0]));
  EXPECT_GE(ranks_[0]->lend(peers, 0, {.call = 1, .bytes = 4096}, {data, 4096}, false), 0);
}

}  // namespace
}  // namespace tutti
