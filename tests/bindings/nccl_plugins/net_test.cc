// Tests messages of the network plugin, called as NCCL's proxies do, in every interface version.
#include <algorithm>
#include <thread>
#include <vector>

#include "tests/bindings/nccl_plugins/net_fixture.h"

namespace tutti::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

TEST_P(NetTest, ReportsItsDevices) {
  EXPECT_STREQ(net().name(), "Tutti");
  int count = 0;
  ASSERT_EQ(net().devices(&count), ncclSuccess);
  ASSERT_EQ(count, 1);  // the test's environment names one device
  DeviceProperties told;
  ASSERT_EQ(net().properties(0, &told), ncclSuccess);
  EXPECT_EQ(told.name, "lo");
  EXPECT_EQ(told.ptr_support, NCCL_PTR_HOST);
  EXPECT_EQ(told.most_receives, 1);
  EXPECT_GT(told.mbits, 0);
  EXPECT_GT(told.most_comms, 1000);
  if (GetParam() >= 9) {
    EXPECT_GE(told.most_bytes, size_t{1} << 30);
  }
  EXPECT_FALSE(net().has_offloads());

  EXPECT_EQ(net().properties(count, &told), ncclInvalidArgument);
  EXPECT_EQ(net().properties(-1, &told), ncclInvalidArgument);
  EXPECT_THAT(take_log(NCCL_LOG_WARN), Contains(HasSubstr("network device 1 does not exist")));
}

TEST_P(NetTest, MovesMessagesOfAllSizes) {
  Pair pair(net());
  for (const size_t size : {size_t{0}, size_t{1}, size_t{7}, size_t{4096}, size_t{64} << 10,
                            (size_t{64} << 10) + 1, (size_t{1} << 20) + 3, size_t{64} << 20}) {
    const Bytes sent = pattern(size, 3);
    Bytes received(size + 5, 0xee);
    std::thread receiving([&] {
      void* request = nullptr;
      ASSERT_EQ(net().irecv(pair.receiver, received.data(), received.size(), 9, &request),
                ncclSuccess);
      EXPECT_EQ(wait(net(), request), static_cast<int>(size));
    });
    void* const request = send_some(net(), pair.sender, sent, 9);
    EXPECT_EQ(wait(net(), request), static_cast<int>(size));
    receiving.join();
    EXPECT_TRUE(std::equal(sent.begin(), sent.end(), received.begin())) << size;
    EXPECT_TRUE(std::all_of(received.begin() + static_cast<ptrdiff_t>(size), received.end(),
                            [](uint8_t byte) { return byte == 0xee; }));
  }
}

TEST_P(NetTest, TagsMatchMessagesToReceives) {
  Pair pair(net());
  const std::vector<int> posted = {3, 1, 2, 1};
  std::vector<Bytes> received(posted.size(), Bytes(100'000));
  std::vector<void*> receives(posted.size());
  for (size_t i = 0; i < posted.size(); ++i) {
    ASSERT_EQ(
        net().irecv(pair.receiver, received[i].data(), received[i].size(), posted[i], &receives[i]),
        ncclSuccess);
  }
  // The first of the two messages with tag 1 matches the first receive.
  const std::vector<int> order = {1, 2, 3, 1};
  std::vector<Bytes> sent;
  for (size_t i = 0; i < order.size(); ++i) sent.push_back(pattern(90'000 + i, 10 + order[i]));
  std::vector<void*> sends;
  for (size_t i = 0; i < order.size(); ++i) {
    sends.push_back(send_some(net(), pair.sender, sent[i], order[i]));
  }
  void* none = &none;
  EXPECT_EQ(net().isend(pair.sender, sent[0].data(), 1, 77, &none), ncclSuccess);
  EXPECT_EQ(none, nullptr);  // no receive is posted for this message

  // Each side tests its last request first.
  std::thread receiving([&] {
    const std::vector<size_t> of_send = {2, 0, 1, 3};
    for (size_t i = posted.size(); i-- > 0;) {
      const Bytes& expected = sent[of_send[i]];
      EXPECT_EQ(wait(net(), receives[i]), static_cast<int>(expected.size()));
      received[i].resize(expected.size());
      EXPECT_EQ(received[i], expected);
    }
  });
  for (size_t i = order.size(); i-- > 0;) {
    EXPECT_EQ(wait(net(), sends[i]), static_cast<int>(sent[i].size()));
  }
  receiving.join();
}

TEST_P(NetTest, ManyMessagesAreInFlight) {
  Pair pair(net());
  constexpr size_t kMany = NCCL_NET_MAX_REQUESTS;
  std::vector<Bytes> received(kMany, Bytes(200'000));
  std::vector<void*> receives(kMany);
  for (size_t i = 0; i < kMany; ++i) {
    ASSERT_EQ(net().irecv(pair.receiver, received[i].data(), received[i].size(), 0, &receives[i]),
              ncclSuccess);
    ASSERT_NE(receives[i], nullptr);
  }
  void* more = &more;
  EXPECT_EQ(net().irecv(pair.receiver, received[0].data(), 1, 0, &more), ncclSuccess);
  EXPECT_EQ(more, nullptr);

  std::vector<Bytes> sent;
  for (size_t i = 0; i < kMany; ++i) sent.push_back(pattern(200'000, static_cast<int>(i)));
  std::vector<void*> sends;
  for (const Bytes& bytes : sent) sends.push_back(send_some(net(), pair.sender, bytes, 0));
  std::thread receiving([&] {
    for (size_t i = kMany; i-- > 0;) {
      EXPECT_EQ(wait(net(), receives[i]), 200'000);
      EXPECT_EQ(received[i], sent[i]);
    }
  });
  for (void* const request : sends) EXPECT_EQ(wait(net(), request), 200'000);
  receiving.join();
}

TEST_P(NetTest, SeveralSendersConnectToOneListener) {
  HandleBytes handle{};
  void* listener = nullptr;
  ASSERT_EQ(net().listen(0, handle, &listener), ncclSuccess);
  constexpr size_t kMany = 3;
  std::vector<HandleBytes> handles(kMany, handle);
  std::vector<void*> senders(kMany);
  std::vector<void*> receivers;
  while (receivers.size() < kMany || std::ranges::count(senders, nullptr) > 0) {
    for (size_t i = 0; i < kMany; ++i) {
      if (senders[i] == nullptr) {
        ASSERT_EQ(net().connect(0, handles[i], &senders[i]), ncclSuccess);
      }
    }
    void* receiver = nullptr;
    ASSERT_EQ(net().accept(listener, &receiver), ncclSuccess);
    if (receiver != nullptr) receivers.push_back(receiver);
  }
  // The contents identify the messages.
  std::vector<Bytes> received(kMany, Bytes(1));
  std::vector<void*> receives(kMany);
  for (size_t i = 0; i < kMany; ++i) {
    ASSERT_EQ(net().irecv(receivers[i], received[i].data(), 1, 0, &receives[i]), ncclSuccess);
  }
  std::vector<int> told;
  for (size_t i = 0; i < kMany; ++i) {
    const Bytes own = {static_cast<uint8_t>(i)};
    EXPECT_EQ(wait(net(), send_some(net(), senders[i], own, 0)), 1);
  }
  for (size_t i = 0; i < kMany; ++i) {
    EXPECT_EQ(wait(net(), receives[i]), 1);
    told.push_back(received[i][0]);
  }
  EXPECT_THAT(told, ::testing::UnorderedElementsAre(0, 1, 2));
  for (size_t i = 0; i < kMany; ++i) {
    EXPECT_EQ(net().close_send(senders[i]), ncclSuccess);
    EXPECT_EQ(net().close_recv(receivers[i]), ncclSuccess);
  }
  EXPECT_EQ(net().close_listen(listener), ncclSuccess);
}

TEST_P(NetTest, MovesMessagesBetweenProcesses) {
  HandleBytes handle{};
  void* listener = nullptr;
  ASSERT_EQ(net().listen(0, handle, &listener), ncclSuccess);
  const Bytes sent = pattern(5'000'000, 1);
  Child child([&] {
    void* sender = nullptr;
    while (sender == nullptr) {
      if (net().connect(0, handle, &sender) != ncclSuccess) return false;
    }
    for (int i = 0; i < 5; ++i) {
      if (wait(net(), send_some(net(), sender, sent, i)) != 5'000'000) return false;
    }
    // Closes while the end of the data is still in flight.
    return net().close_send(sender) == ncclSuccess;
  });
  void* receiver = nullptr;
  while (receiver == nullptr) ASSERT_EQ(net().accept(listener, &receiver), ncclSuccess);
  for (int i = 0; i < 5; ++i) {
    Bytes received(sent.size());
    void* request = nullptr;
    ASSERT_EQ(net().irecv(receiver, received.data(), received.size(), i, &request), ncclSuccess);
    EXPECT_EQ(wait(net(), request), 5'000'000);
    EXPECT_TRUE(received == sent);
  }
  EXPECT_EQ(child.status(), 0);
  EXPECT_EQ(net().close_recv(receiver), ncclSuccess);
  EXPECT_EQ(net().close_listen(listener), ncclSuccess);
}

INSTANTIATE_TEST_SUITE_P(Versions, NetTest, ::testing::Range(8, 13),
                         [](const auto& version) { return "v" + std::to_string(version.param); });

}  // namespace
}  // namespace tutti::testing
