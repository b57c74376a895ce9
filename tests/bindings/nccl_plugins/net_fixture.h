// Test fixture: connections of the network plugin in every version, and peer processes.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/bindings/nccl_plugins/net_host.h"

namespace tutti::testing {

using Bytes = std::vector<uint8_t>;

inline Bytes pattern(size_t size, int seed) {
  Bytes bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<uint8_t>(i * 31 + i / 251 + seed);
  return bytes;
}

inline const Library& library() {
  static const Library opened;
  return opened;
}

// Both ends of a connection in this process, driven by one or two threads.
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

// Sends as NCCL's proxy does: repeats a call that would block.
inline void* send_some(Net& net, void* sender, const Bytes& bytes, int tag) {
  void* request = nullptr;
  while (request == nullptr) {
    if (net.isend(sender, bytes.data(), bytes.size(), tag, &request) != ncclSuccess) return nullptr;
    if (request == nullptr) std::this_thread::yield();
  }
  return request;
}

// Waits for a request. Returns its size, or -1 after an error, which is stored in `result`.
inline int wait(Net& net, void* request, ncclResult_t* result = nullptr) {
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

// Runs `body` in a child process, which exits with 0 if it returned true.
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

}  // namespace tutti::testing
