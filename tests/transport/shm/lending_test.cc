// Tests messages that are read in place: lending, returning, and revoking during a read.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "transport/fault/fault_transport.h"
#include "transport/shm/heap.h"
#include "transport/shm/shm_transport.h"

namespace tutti {
namespace {

constexpr uint64_t kFileBytes = uint64_t{1} << 30;

std::shared_ptr<const Fd> make_file() {
  auto file = std::make_shared<const Fd>(::memfd_create("lending-test", MFD_CLOEXEC));
  EXPECT_EQ(::ftruncate(file->get(), static_cast<off_t>(kFileBytes)), 0);
  return file;
}

class Lending : public ::testing::Test {
 protected:
  Lending() {
    const shm::Geometry geometry(3, 3);
    const Fd memory = shm::Region::create(geometry);
    for (int r = 0; r < 3; ++r) {
      ranks_.push_back(
          std::make_unique<ShmTransport>(r, shm::Region::map(memory, geometry), geometry));
      ranks_.back()->use({.own = r == 0 ? &heap_ : nullptr, .others = &others_, .unreadable = {}});
    }
  }

  const std::shared_ptr<const Fd> file_ = make_file();
  shm::Heap heap_{file_, {0, kFileBytes}};
  shm::PeerMemory others_{file_};
  std::vector<std::unique_ptr<ShmTransport>> ranks_;
};

TEST_F(Lending, ReadersSeeTheSendersMemoryUntilAllHaveReadIt) {
  constexpr size_t kBytes = 10'000;
  std::byte* const data = heap_.allocate(kBytes);
  std::memset(data, 7, kBytes);
  const std::array peers = {1, 2};
  const std::span<const std::byte> payload(data, kBytes);
  ASSERT_TRUE(ranks_[0]->can_lend(peers, payload));
  const int loan = ranks_[0]->lend(peers, 0, {.call = 1, .bytes = kBytes}, payload);
  ASSERT_GE(loan, 0);
  data[123] = std::byte{8};  // memory is not copied, so that the reader sees this change
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

TEST_F(Lending, ReadingWritesNothing) {
  constexpr size_t kBytes = 10'000;
  std::byte* const data = heap_.allocate(kBytes);
  for (size_t i = 0; i < kBytes; ++i) data[i] = static_cast<std::byte>(i * 3);
  const std::vector<std::byte> before(data, data + kBytes);
  const std::array peers = {1};
  for (int turn = 1; turn <= 20; ++turn) {  // more messages than a connection holds at a time
    const int loan = ranks_[0]->lend(peers, 0, {.call = 1, .bytes = 9999}, {data + 1, 9999});
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

TEST_F(Lending, WaitsIfTheConnectionIsFull) {
  std::byte* const data = heap_.allocate(4096);
  const std::array peers = {1};
  std::vector<int> loans;
  for (int loan = 0; loan >= 0;) {
    loan = ranks_[0]->lend(peers, 0, {.call = 1, .bytes = 4096}, {data, 4096});
    if (loan >= 0) loans.push_back(loan);
  }
  EXPECT_EQ(loans.size(), shm::kCells);
  ranks_[1]->release(0, 0);
  EXPECT_TRUE(ranks_[0]->take_back(loans[0]));
  EXPECT_GE(ranks_[0]->lend(peers, 0, {.call = 1, .bytes = 4096}, {data, 4096}), 0);
}

// Size of a loan in bytes, and the rank that reads it.
constexpr size_t kBytes = 32 << 10;
constexpr std::array kReader = {1};

TEST_F(Lending, RevokedLoansAreDiscarded) {
  std::byte* const data = heap_.allocate(kBytes);
  std::memset(data, 1, kBytes);
  ASSERT_GE(ranks_[0]->lend(kReader, 0, {.call = 1, .bytes = kBytes}, {data, kBytes}), 0);
  const std::byte* const payload = ranks_[1]->payload(0, 0);
  ASSERT_NE(payload, nullptr);
  EXPECT_EQ(payload[0], std::byte{1});
  ranks_[0]->revoke();
  std::memset(data, 2, kBytes);
  EXPECT_EQ(payload[kBytes - 1], std::byte{2}) << "it can still be read,";
  EXPECT_FALSE(ranks_[1]->release(0, 0)) << "and is worth nothing";
  EXPECT_EQ(ranks_[1]->payload(0, 0), nullptr);
  std::vector<std::byte> received(kBytes);
  EXPECT_FALSE(ranks_[1]->read(0, 0, received, Store::cached));
  EXPECT_FALSE(ranks_[1]->release(0, 0));
}

TEST_F(Lending, LoansReadBeforeTheRevocationAreAccepted) {
  std::byte* const data = heap_.allocate(kBytes);
  ASSERT_GE(ranks_[0]->lend(kReader, 0, {.call = 1, .bytes = kBytes}, {data, kBytes}), 0);
  ASSERT_NE(ranks_[1]->payload(0, 0), nullptr);
  EXPECT_TRUE(ranks_[1]->release(0, 0));
  ranks_[0]->revoke();
}

TEST_F(Lending, LaterLoansAreNotRevoked) {
  std::byte* const data = heap_.allocate(kBytes);
  const std::array both = {1, 2};
  ASSERT_GE(ranks_[0]->lend(both, 0, {.call = 1, .bytes = kBytes}, {data, kBytes}), 0);
  EXPECT_TRUE(ranks_[2]->release(0, 0));
  ranks_[0]->revoke();
  const std::array other = {2};
  const int loan = ranks_[0]->lend(other, 0, {.call = 2, .bytes = kBytes}, {data, kBytes});
  ASSERT_GE(loan, 0);
  EXPECT_FALSE(ranks_[1]->release(0, 0));
  EXPECT_FALSE(ranks_[0]->take_back(loan));
  ASSERT_NE(ranks_[2]->payload(0, 0), nullptr);
  EXPECT_TRUE(ranks_[2]->release(0, 0));
  EXPECT_TRUE(ranks_[0]->take_back(loan));
}

// The loan is revoked at random moments of a read. The reader must accept only the lent contents,
// and must never overwrite what the owner writes afterwards.
TEST(LendingRace, ARevokedLoanIsNeverAcceptedNorWrittenTo) {
  constexpr int kTurns = 300;
  const shm::Geometry geometry(2, 2);
  const std::shared_ptr<const Fd> file = make_file();
  shm::Heap heap(file, {0, kFileBytes});
  shm::PeerMemory others(file);
  std::byte* const data = heap.allocate(kBytes);
  int believed = 0;
  for (int turn = 0; turn < kTurns; ++turn) {
    const Fd memory = shm::Region::create(geometry);
    std::array<std::unique_ptr<ShmTransport>, 2> ranks;
    for (int r = 0; r < 2; ++r) {
      ranks[r] = std::make_unique<ShmTransport>(r, shm::Region::map(memory, geometry), geometry);
      ranks[r]->use({.own = &heap, .others = &others, .unreadable = {}});
    }
    std::memset(data, 1, kBytes);
    ASSERT_GE(ranks[0]->lend(kReader, 0, {.call = 1, .bytes = kBytes}, {data, kBytes}), 0);
    std::atomic<bool> reads{false};
    std::vector<std::byte> received(kBytes);
    bool believes = false;
    std::thread reader([&] {
      reads = true;
      believes = ranks[1]->read(0, 0, received, Store::cached) && ranks[1]->release(0, 0);
    });
    while (!reads) std::this_thread::yield();
    for (int i = 0; i < turn * 20; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
    ranks[0]->revoke();
    std::memset(data, 2, kBytes);
    reader.join();
    believed += believes ? 1 : 0;
    if (believes) {
      EXPECT_EQ(std::ranges::count(received, std::byte{1}), kBytes) << turn;
    }
    EXPECT_EQ(std::ranges::count(std::span(data, kBytes), std::byte{2}), kBytes) << turn;
  }
  RecordProperty("believed", believed);
}

// The message must arrive although its reader cannot map the loan.
TEST_F(Lending, UnmappableLoansAreCopied) {
  constexpr size_t kMuch = 256 << 20;
  std::byte* const data = heap_.allocate(kMuch);
  std::memset(data, 3, kBytes);
  ASSERT_GE(ranks_[0]->lend(kReader, 0, {.call = 1, .bytes = kBytes}, {data, kBytes}), 0);
  ASSERT_GE(ranks_[0]->lend(kReader, 0, {.call = 2, .bytes = kBytes}, {data, kBytes}), 0);
  std::vector<std::byte> received(kBytes);
  const auto is_right = [](const std::byte* bytes) {
    return bytes != nullptr && std::count(bytes, bytes + kBytes, std::byte{3}) == kBytes;
  };
  const pid_t pid = ::fork();
  if (pid == 0) {
    const rlimit none{.rlim_cur = 1 << 20, .rlim_max = 1 << 20};
    bool right = ::setrlimit(RLIMIT_AS, &none) == 0;
    const std::byte* const payload = ranks_[1]->payload(0, 0);
    right = right && is_right(payload) && payload == ranks_[1]->payload(0, 0);
    right = right && ranks_[1]->release(0, 0);
    right = right && ranks_[1]->read(0, 0, received, Store::cached) && is_right(received.data());
    ranks_[0]->revoke();
    right = right && ranks_[1]->payload(0, 0) == nullptr && !ranks_[1]->release(0, 0);
    ::_exit(right ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(Lending, FaultsAffectLentMessagesToo) {
  std::byte* const data = heap_.allocate(kBytes);
  const auto lend = [&](Transport& transport) {
    return transport.lend(kReader, 0, {.call = 1, .bytes = kBytes}, {data, kBytes});
  };
  const auto take = [&](size_t bytes) {
    ASSERT_NE(ranks_[1]->front(0, 0), nullptr);
    EXPECT_EQ(ranks_[1]->front(0, 0)->bytes, bytes);
    EXPECT_TRUE(ranks_[1]->release(0, 0));
  };
  Faults faults(parse_faults("truncate:0:2,delay:0:3:1,kill:1:1"), 0);
  FaultTransport truncates(std::move(ranks_[0]), faults, [] {});
  EXPECT_TRUE(truncates.can_lend(kReader, {data, kBytes}));
  const int first = lend(truncates);
  ASSERT_GE(first, 0);
  take(kBytes);
  EXPECT_TRUE(truncates.take_back(first));
  ASSERT_GE(lend(truncates), 0);
  take(kBytes / 2);
  ASSERT_GE(lend(truncates), 0);
  take(kBytes);
}

TEST_F(Lending, AStalledRankStopsLending) {
  std::byte* const data = heap_.allocate(kBytes);
  Faults faults(parse_faults("stall:0:1"), 0);
  FaultTransport stalls(std::move(ranks_[0]), faults, [] {});
  EXPECT_LT(stalls.lend(kReader, 0, {.call = 1, .bytes = kBytes}, {data, kBytes}), 0);
  EXPECT_LT(stalls.lend(kReader, 0, {.call = 1, .bytes = kBytes}, {data, kBytes}), 0);
  EXPECT_EQ(ranks_[1]->front(0, 0), nullptr);
}

}  // namespace
}  // namespace tutti
