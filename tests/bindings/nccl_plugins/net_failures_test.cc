// Tests failures of the network plugin: dead or absent peers, strangers, and errors of the caller.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "bindings/nccl_plugins/net_meeting.h"
#include "tests/bindings/nccl_plugins/net_fixture.h"
#include "transport/bootstrap/handshake/socket.h"

namespace tutti::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

struct Pipe {
  Pipe() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return;
    out = Fd(ends[0]);
    in = Fd(ends[1]);
  }
  Fd out;
  Fd in;
};

using NetFailuresTest = NetTest;

TEST_P(NetFailuresTest, ReportsThatNobodyListens) {
  HandleBytes handle{};
  void* listener = nullptr;
  ASSERT_EQ(net().listen(0, handle, &listener), ncclSuccess);
  ASSERT_EQ(net().close_listen(listener), ncclSuccess);
  void* sender = nullptr;
  ncclResult_t result = ncclSuccess;
  while (result == ncclSuccess && sender == nullptr) result = net().connect(0, handle, &sender);
  EXPECT_EQ(result, ncclRemoteError);
  EXPECT_EQ(sender, nullptr);
  EXPECT_THAT(take_log(NCCL_LOG_WARN), Contains(HasSubstr("refused")));
}

TEST_P(NetFailuresTest, SenderReportsADeadReceiver) {
  HandleBytes handle{};
  void* listener = nullptr;
  ASSERT_EQ(net().listen(0, handle, &listener), ncclSuccess);
  Pipe ready;
  Bytes memory(64 << 20);
  Child child([&] {
    void* receiver = nullptr;
    while (receiver == nullptr) {
      if (net().accept(listener, &receiver) != ncclSuccess) return false;
    }
    void* request = nullptr;
    if (net().irecv(receiver, memory.data(), memory.size(), 0, &request) != ncclSuccess) {
      return false;
    }
    const bool told = ::write(ready.in.get(), "x", 1) == 1;
    for (;;) ::pause();
    return told;
  });
  void* sender = nullptr;
  while (sender == nullptr) ASSERT_EQ(net().connect(0, handle, &sender), ncclSuccess);
  char byte = 0;
  ASSERT_EQ(::read(ready.out.get(), &byte, 1), 1);
  void* const request = send_some(net(), sender, memory, 0);
  ASSERT_NE(request, nullptr);
  int done = 0;
  ASSERT_EQ(net().test(request, &done, nullptr), ncclSuccess);
  EXPECT_EQ(done, 0);  // the receiver does not read
  child.kill();
  ncclResult_t result = ncclSuccess;
  EXPECT_EQ(wait(net(), request, &result), -1);
  EXPECT_EQ(result, ncclRemoteError);
  EXPECT_THAT(take_log(NCCL_LOG_WARN), Contains(HasSubstr("broke")));
  void* more = nullptr;
  EXPECT_EQ(net().isend(sender, memory.data(), 1, 0, &more), ncclRemoteError);
  EXPECT_EQ(net().close_send(sender), ncclSuccess);
  EXPECT_EQ(net().close_listen(listener), ncclSuccess);
}

TEST_P(NetFailuresTest, ReceiverReportsADeadSender) {
  HandleBytes handle{};
  void* listener = nullptr;
  ASSERT_EQ(net().listen(0, handle, &listener), ncclSuccess);
  const Bytes first = pattern(1000, 4);
  Child child([&] {
    void* sender = nullptr;
    while (sender == nullptr) {
      if (net().connect(0, handle, &sender) != ncclSuccess) return false;
    }
    if (wait(net(), send_some(net(), sender, first, 0)) != 1000) return false;
    for (;;) ::pause();
    return true;
  });
  void* receiver = nullptr;
  while (receiver == nullptr) ASSERT_EQ(net().accept(listener, &receiver), ncclSuccess);
  Bytes memory(1000);
  std::array<void*, 2> requests{};
  for (void*& request : requests) {
    ASSERT_EQ(net().irecv(receiver, memory.data(), memory.size(), 0, &request), ncclSuccess);
  }
  EXPECT_EQ(wait(net(), requests[0]), 1000);
  EXPECT_EQ(memory, first);
  child.kill();
  ncclResult_t result = ncclSuccess;
  EXPECT_EQ(wait(net(), requests[1], &result), -1);
  EXPECT_EQ(result, ncclRemoteError);
  EXPECT_THAT(take_log(NCCL_LOG_WARN), Contains(HasSubstr("broke")));
  EXPECT_EQ(net().close_recv(receiver), ncclSuccess);
  EXPECT_EQ(net().close_listen(listener), ncclSuccess);
}

TEST_P(NetFailuresTest, StrangersChangeNothing) {
  HandleBytes handle{};
  void* listener = nullptr;
  ASSERT_EQ(net().listen(0, handle, &listener), ncclSuccess);
  const nccl::Handle where = nccl::read_handle(handle.data());
  const auto address = bootstrap::resolve(where.address.data(), where.port).front();
  std::vector<Fd> strangers(3);
  for (Fd& stranger : strangers) {
    ASSERT_EQ(bootstrap::try_connect(address, Deadline::never(), stranger), 0);
  }
  const Bytes garbage = pattern(300, 5);
  ASSERT_EQ(::write(strangers[0].get(), garbage.data(), garbage.size()), 300);
  ASSERT_EQ(::write(strangers[1].get(), bootstrap::kMagic.data(), 5), 5);  // an incomplete hello

  // A peer that speaks the protocol with a wrong key.
  nccl::Handle wrong = where;
  wrong.key[0] = wrong.key[0] == 'a' ? 'b' : 'a';
  HandleBytes theirs{};
  nccl::write_handle(wrong, theirs.data());
  void* sender = nullptr;
  void* receiver = nullptr;
  ncclResult_t result = ncclSuccess;
  while (result == ncclSuccess) {
    result = net().connect(0, theirs, &sender);
    ASSERT_EQ(net().accept(listener, &receiver), ncclSuccess);
    ASSERT_EQ(sender, nullptr);
    ASSERT_EQ(receiver, nullptr);
  }
  EXPECT_EQ(result, ncclRemoteError);

  while (sender == nullptr || receiver == nullptr) {
    if (sender == nullptr) {
      ASSERT_EQ(net().connect(0, handle, &sender), ncclSuccess);
    }
    if (receiver == nullptr) {
      ASSERT_EQ(net().accept(listener, &receiver), ncclSuccess);
    }
  }
  Bytes received(garbage.size());
  void* request = nullptr;
  ASSERT_EQ(net().irecv(receiver, received.data(), received.size(), 0, &request), ncclSuccess);
  EXPECT_EQ(wait(net(), send_some(net(), sender, garbage, 0)), 300);
  EXPECT_EQ(wait(net(), request), 300);
  EXPECT_EQ(received, garbage);
  EXPECT_EQ(net().close_send(sender), ncclSuccess);
  EXPECT_EQ(net().close_recv(receiver), ncclSuccess);
  EXPECT_EQ(net().close_listen(listener), ncclSuccess);
}

TEST_P(NetFailuresTest, ReportsWrongCalls) {
  Pair pair(net());
  HandleBytes foreign{};
  void* sender = nullptr;
  EXPECT_EQ(net().connect(0, foreign, &sender), ncclInvalidArgument);
  EXPECT_THAT(take_log(NCCL_LOG_WARN), Contains(HasSubstr("not created by Tutti")));

  Bytes memory(100);
  void* request = nullptr;
  EXPECT_EQ(net().irecv(pair.receiver, memory.data(), 100, 0, &request, 2), ncclInvalidArgument);
  ASSERT_EQ(net().irecv(pair.receiver, memory.data(), 99, 0, &request), ncclSuccess);
  void* send = nullptr;
  ncclResult_t result = ncclSuccess;
  while (result == ncclSuccess && send == nullptr) {
    result = net().isend(pair.sender, memory.data(), 100, 0, &send);
  }
  EXPECT_EQ(result, ncclInvalidUsage);
  EXPECT_THAT(take_log(NCCL_LOG_WARN), Contains(HasSubstr("longer than the receive of 99 bytes")));
}

TEST_P(NetFailuresTest, AcceptsOnlyHostMemory) {
  Pair pair(net());
  Bytes memory(100);
  for (void* const comm : {pair.sender, pair.receiver}) {
    void* registered = &registered;
    EXPECT_EQ(net().reg_mr(comm, memory.data(), 100, NCCL_PTR_HOST, &registered), ncclSuccess);
    EXPECT_EQ(net().dereg_mr(comm, registered), ncclSuccess);
    constexpr int kDevice = 2;
    EXPECT_EQ(net().reg_mr(comm, memory.data(), 100, kDevice, &registered), ncclInvalidUsage);
    EXPECT_EQ(net().reg_dma_buf(comm, memory.data(), 100, kDevice, &registered), ncclInvalidUsage);
  }
  EXPECT_THAT(take_log(NCCL_LOG_WARN), Contains(HasSubstr("host memory only")));
  void* request = &request;
  EXPECT_EQ(net().iflush(pair.receiver, memory.data(), 100, &request), ncclSuccess);
  EXPECT_EQ(request, nullptr);
}

INSTANTIATE_TEST_SUITE_P(Versions, NetFailuresTest, ::testing::Range(8, 13),
                         [](const auto& version) { return "v" + std::to_string(version.param); });

}  // namespace
}  // namespace tutti::testing
