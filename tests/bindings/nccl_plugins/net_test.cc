// The network plugin, called as NCCL's proxies call it, in every version of its interface.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "bindings/nccl_plugins/net_meeting.h"
#include "tests/bindings/nccl_plugins/net_host.h"
#include "transport/bootstrap/socket.h"

namespace tutti::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

using Bytes = std::vector<uint8_t>;

Bytes pattern(size_t size, int seed) {
  Bytes bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<uint8_t>(i * 31 + i / 251 + seed);
  return bytes;
}

const Library& library() {
  static const Library opened;
  return opened;
}

// Both ends in this process, driven by one thread or two.
struct Pair {
  explicit Pair(Net& net) : net(net) {
    EXPECT_EQ(net.listen(0, handle, &listener), ncclSuccess);
    HandleBytes theirs = handle;
    while (sender == nullptr || receiver == nullptr) {
      if (sender == nullptr && net.connect(0, theirs, &sender) != ncclSuccess) break;
      if (receiver == nullptr && net.accept(listener, &receiver) != ncclSuccess) break;
      std::this_thread::yield();
    }
    EXPECT_NE(sender, nullptr);
    EXPECT_NE(receiver, nullptr);
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;
  ~Pair() {
    if (sender != nullptr) {
      EXPECT_EQ(net.close_send(sender), ncclSuccess);
    }
    if (receiver != nullptr) {
      EXPECT_EQ(net.close_recv(receiver), ncclSuccess);
    }
    EXPECT_EQ(net.close_listen(listener), ncclSuccess);
  }

  Net& net;
  HandleBytes handle{};
  void* listener = nullptr;
  void* sender = nullptr;
  void* receiver = nullptr;
};

// As the proxy does: what would block is asked for again.
void* send_some(Net& net, void* sender, const Bytes& bytes, int tag) {
  void* request = nullptr;
  while (request == nullptr) {
    if (net.isend(sender, bytes.data(), bytes.size(), tag, &request) != ncclSuccess) return nullptr;
    if (request == nullptr) std::this_thread::yield();
  }
  return request;
}

// The size, or -1 after an error, which goes to `result`.
int wait(Net& net, void* request, ncclResult_t* result = nullptr) {
  int done = 0;
  int size = -1;
  while (done == 0) {
    const ncclResult_t tested = net.test(request, &done, &size);
    if (result != nullptr) *result = tested;
    if (tested != ncclSuccess) return -1;
    if (done == 0) std::this_thread::yield();
  }
  return size;
}

// Runs `body` in a process of its own, which ends with the status 0 if that returned true.
class Child {
 public:
  explicit Child(const std::function<bool()>& body) : pid_(::fork()) {
    if (pid_ == 0) ::_exit(body() ? 0 : 1);
  }
  ~Child() {
    if (pid_ > 0) kill();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  int status() {
    int status = 0;
    ::waitpid(std::exchange(pid_, -1), &status, 0);
    return status;
  }
  void kill() {
    ::kill(pid_, SIGKILL);
    status();
  }

 private:
  pid_t pid_;
};

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

class NetTest : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    ASSERT_TRUE(library().is_open()) << ::dlerror();
    net_ = make_net(library(), GetParam());
    ASSERT_NE(net_, nullptr);
    ASSERT_EQ(net_->init(), ncclSuccess);
    take_log(NCCL_LOG_WARN);
  }
  void TearDown() override { EXPECT_EQ(net_->finalize(), ncclSuccess); }

  Net& net() { return *net_; }

 private:
  std::unique_ptr<Net> net_;
};

TEST_P(NetTest, TellsItsDevices) {
  EXPECT_STREQ(net().name(), "Tutti");
  int count = 0;
  ASSERT_EQ(net().devices(&count), ncclSuccess);
  ASSERT_EQ(count, 1);  // the test's environment names one
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
  EXPECT_THAT(take_log(NCCL_LOG_WARN), Contains(HasSubstr("there is no network device 1")));
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
    EXPECT_EQ(std::memcmp(received.data(), sent.data(), size), 0) << size;
    EXPECT_TRUE(std::all_of(received.begin() + static_cast<ptrdiff_t>(size), received.end(),
                            [](uint8_t byte) { return byte == 0xee; }));
  }
}

TEST_P(NetTest, TagsSayWhichReceiveAMessageIsFor) {
  Pair pair(net());
  const std::vector<int> posted = {3, 1, 2, 1};
  std::vector<Bytes> received(posted.size(), Bytes(100'000));
  std::vector<void*> receives(posted.size());
  for (size_t i = 0; i < posted.size(); ++i) {
    ASSERT_EQ(
        net().irecv(pair.receiver, received[i].data(), received[i].size(), posted[i], &receives[i]),
        ncclSuccess);
  }
  // Of the two of tag 1 the first sent is for the first posted.
  const std::vector<int> order = {1, 2, 3, 1};
  std::vector<Bytes> sent;
  for (size_t i = 0; i < order.size(); ++i) sent.push_back(pattern(90'000 + i, 10 + order[i]));
  std::vector<void*> sends;
  for (size_t i = 0; i < order.size(); ++i) {
    sends.push_back(send_some(net(), pair.sender, sent[i], order[i]));
  }
  void* none = &none;
  EXPECT_EQ(net().isend(pair.sender, sent[0].data(), 1, 77, &none), ncclSuccess);
  EXPECT_EQ(none, nullptr);  // nobody waits for that

  // Each side asks about its last first.
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

TEST_P(NetTest, ManyAreUnderWay) {
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

TEST_P(NetTest, SeveralConnectOneListener) {
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
  // Who is whose is told by what comes.
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
    // Leaves while the last of it is on its way.
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

TEST_P(NetTest, NobodyListens) {
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

TEST_P(NetTest, ASenderHearsOfADeath) {
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
  EXPECT_EQ(done, 0);  // it does not read
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

TEST_P(NetTest, AReceiverHearsOfADeath) {
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

TEST_P(NetTest, StrangersChangeNothing) {
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
  ASSERT_EQ(::write(strangers[1].get(), bootstrap::kMagic.data(), 5), 5);  // and no more

  // One that speaks the protocol and has a wrong key.
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

TEST_P(NetTest, MistakesAreTold) {
  Pair pair(net());
  HandleBytes foreign{};
  void* sender = nullptr;
  EXPECT_EQ(net().connect(0, foreign, &sender), ncclInvalidArgument);
  EXPECT_THAT(take_log(NCCL_LOG_WARN), Contains(HasSubstr("not one of Tutti's")));

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

TEST_P(NetTest, TakesTheMemoryOfTheHostOnly) {
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

INSTANTIATE_TEST_SUITE_P(Versions, NetTest, ::testing::Range(8, 13),
                         [](const auto& version) { return "v" + std::to_string(version.param); });

}  // namespace
}  // namespace tutti::testing
