// Tests point-to-point messages that are longer than the slots of a transport. They are read as a
// whole if the reader can access the sender's buffer, and sent in slices otherwise, in any order.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <future>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "base/settings.h"
#include "collectives/communicator.h"
#include "tests/support/ranks.h"

namespace tutti {
namespace {

constexpr size_t kLong = 1 << 20;  // elements

int32_t value(size_t i, int message) { return static_cast<int32_t>(i * 3) + message; }

void fill(std::span<int32_t> values, int message) {
  for (size_t i = 0; i < values.size(); ++i) values[i] = value(i, message);
}

bool is_filled(std::span<const int32_t> values, int message) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i] != value(i, message)) return false;
  }
  return true;
}

// The sender starts its messages, and makes no progress until the receiver has received all. If
// messages needed the sender's help, the test would never end.
void expect_received_without_the_sender(Communicator& comm, std::span<const std::span<int32_t>> out,
                                        std::promise<void>& received) {
  if (comm.rank() == 0) {
    std::vector<Work> works;
    for (size_t i = 0; i < out.size(); ++i) {
      fill(out[i], static_cast<int>(i));
      works.push_back(comm.send_async(const_buffer_of(std::span<const int32_t>(out[i])), 1));
    }
    received.get_future().wait();
    for (Work& work : works) work.wait();
  } else {
    for (size_t i = 0; i < out.size(); ++i) {
      std::vector<int32_t> in(out[i].size());
      comm.recv(std::span(in), 0);
      EXPECT_TRUE(is_filled(in, static_cast<int>(i)));
    }
    received.set_value();
  }
}

TEST(LongMessages, LibraryMemoryNeedsNoHelpOfTheSender) {
  std::promise<void> received;
  testing::run_ranks(2, [&](const Job& job) {
    Communicator comm = Communicator::init(job);
    const Memory<int32_t> memory = comm.allocate<int32_t>(kLong);
    const std::span<int32_t> out[] = {{memory.get(), kLong}};
    expect_received_without_the_sender(comm, out, received);
  });
}

// With many ranks, slots are small: even a message that is too short to be lent needs more slices
// than there are slots. Each rank sends to the next one.
TEST(LongMessages, LibraryMemoryFitsTheSlotsOfManyRanks) {
  for (const int ranks : {2, 8, 20, 30}) {
    testing::run_ranks(ranks, [&](const Job& job) {
      Communicator comm = Communicator::init(job);
      constexpr int kMessages = 4;
      for (const size_t count : {1, 250, 512, 545, 600, 800, 1000, 1023, 1024, 2000, 5000}) {
        const Memory<int32_t> memory = comm.allocate<int32_t>(kMessages * count);
        std::vector<Work> works;
        for (int message = 0; message < kMessages; ++message) {
          const std::span out(memory.get() + message * count, count);
          fill(out, message);
          works.push_back(comm.send_async(const_buffer_of(std::span<const int32_t>(out)),
                                          (comm.rank() + 1) % ranks, {.tag = message}));
        }
        for (int message = 0; message < kMessages; ++message) {
          std::vector<int32_t> in(count);
          comm.recv(std::span(in), (comm.rank() + ranks - 1) % ranks, {.tag = message});
          ASSERT_TRUE(is_filled(in, message)) << count << " elements on " << ranks << " ranks";
        }
        for (Work& work : works) work.wait();
      }
    });
  }
}

TEST(LongMessages, UnalignedRegisteredMemoryNeedsNoHelpOfTheSender) {
  std::promise<void> received;
  testing::run_ranks(2, [&](const Job& job) {
    Communicator comm = Communicator::init(job);
    std::vector<int32_t> memory(kLong);
    const Registration registration =
        comm.register_memory(memory.data(), memory.size() * sizeof(int32_t));
    // The first and the last page of the message are incomplete.
    const std::span<int32_t> out[] = {std::span(memory).subspan(2049, kLong - 5000)};
    expect_received_without_the_sender(comm, out, received);
  });
}

class LongMessagesOver : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { settings().set("TUTTI_TRANSPORT", GetParam()); }
  void TearDown() override { settings().set("TUTTI_TRANSPORT", "auto"); }
};

INSTANTIATE_TEST_SUITE_P(Both, LongMessagesOver, ::testing::Values("shm", "tcp"),
                         [](const auto& info) { return info.param; });

// Every second message is sent from memory that the reader can access. The receiver's buffers are
// of either kind.
TEST_P(LongMessagesOver, KeepTheirOrderWhateverTheirMemory) {
  const std::vector<size_t> counts = {1, kLong, 3 * 4096 - 1, 0, 70'000, 4096, 200'001, kLong, 16};
  testing::run_ranks(3, [&](const Job& job) {
    Communicator comm = Communicator::init(job);
    const size_t total = std::accumulate(counts.begin(), counts.end(), size_t{0});
    const Memory<int32_t> own = comm.allocate<int32_t>(total);
    std::vector<int32_t> plain(total);
    const int next = (comm.rank() + 1) % comm.size();
    const int previous = (comm.rank() + comm.size() - 1) % comm.size();
    std::vector<Work> works;
    std::vector<std::vector<int32_t>> received;
    for (const size_t count : counts) received.emplace_back(count, -1);
    size_t offset = 0;
    for (size_t i = 0; i < counts.size(); ++i) {
      std::span<int32_t> out(i % 2 == 0 ? plain.data() : own.get(), total);
      out = out.subspan(offset, counts[i]);
      offset += counts[i];
      fill(out, static_cast<int>(i));
      works.push_back(comm.send_async(const_buffer_of(std::span<const int32_t>(out)), next));
      works.push_back(comm.recv_async(buffer_of(std::span(received[i])), previous));
    }
    for (Work& work : works) work.wait();
    for (size_t i = 0; i < counts.size(); ++i) {
      EXPECT_TRUE(is_filled(received[i], static_cast<int>(i))) << "message " << i;
    }
  });
}

TEST_P(LongMessagesOver, WrongSizesAreRefused) {
  for (const size_t expected : {size_t{100}, kLong / 2, 2 * kLong}) {
    const auto errors = testing::run_ranks_catching(2, [&](const Job& job) {
      Communicator comm = Communicator::init(job);
      if (comm.rank() == 0) {
        const Memory<int32_t> out = comm.allocate<int32_t>(kLong);
        comm.send(std::span<const int32_t>(out.get(), kLong), 1);
        comm.barrier();
      } else {
        std::vector<int32_t> in(expected);
        comm.recv(std::span(in), 0);
        comm.barrier();
      }
    });
    for (const auto& error : errors) {
      ASSERT_TRUE(error) << expected;
      EXPECT_EQ(error->code(), ErrorCode::mismatch) << error->what();
    }
  }
}

// The address range is still registered as readable by others, but they would find the old contents
// there.
TEST(LongMessages, NewMappingsAtFreedRegisteredAddressesArriveIntact) {
  testing::run_ranks(2, [&](const Job& job) {
    constexpr size_t kBytes = kLong * sizeof(int32_t);
    Communicator comm = Communicator::init(job);
    const auto map = [](void* at) {
      void* const data =
          ::mmap(at, kBytes, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | (at == nullptr ? 0 : MAP_FIXED), -1, 0);
      EXPECT_NE(data, MAP_FAILED);
      return std::span(static_cast<int32_t*>(data), kLong);
    };
    if (comm.rank() == 1) {
      std::vector<int32_t> in(kLong);
      for (const int message : {1, 2, 3}) {
        comm.recv(std::span(in), 0);
        EXPECT_TRUE(is_filled(in, message)) << message;
      }
      return;
    }
    const std::span<int32_t> memory = map(nullptr);
    const Registration registration = comm.register_memory(memory.data(), kBytes);
    fill(memory, 1);
    comm.send(std::span<const int32_t>(memory), 1);
    const std::span<int32_t> next = map(memory.data());  // at the same addresses
    fill(next, 2);
    comm.send(std::span<const int32_t>(next), 1);
    const Registration again = comm.register_memory(next.data(), kBytes);
    fill(next, 3);
    comm.send(std::span<const int32_t>(next), 1);
  });
}

}  // namespace
}  // namespace tutti
