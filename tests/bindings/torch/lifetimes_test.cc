// Tests the lifetime of calls of PyTorch's process groups, without PyTorch. Ranks are threads.
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <future>
#include <latch>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bindings/torch/extension/connection.h"
#include "bindings/torch/extension/driver.h"
#include "bindings/torch/extension/errors.h"
#include "bindings/torch/extension/pending_call.h"

namespace tutti::torch_backend {

// Replaces torch's exceptions.
std::exception_ptr error_of(tutti_status_t status, const std::string& text, const char* call) {
  return std::make_exception_ptr(
      std::runtime_error(std::string(tutti_error_name(status)) + ": " + call + ": " + text));
}

namespace {

std::string text_of(const std::exception_ptr& error) {
  if (!error) return "";
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& thrown) {
    return thrown.what();
  }
}

// Joins a job of `size` threads that pass the same name.
std::shared_ptr<Connection> join(int rank, int size, const std::string& name) {
  const std::string file = std::filesystem::path(::testing::TempDir()) /
                           ("tutti-" + name + "-" + std::to_string(::getpid()));
  tutti_init_options_t options = TUTTI_INIT_OPTIONS_INIT;
  options.rank = rank;
  options.ranks = size;
  options.rendezvous_file = file.c_str();
  tutti_comm_t* comm = nullptr;
  check(tutti_init(&comm, &options), "join");
  return Connection::made(comm, std::make_shared<Driver>());
}

class TestCall final : public PendingCall {
 public:
  explicit TestCall(std::shared_ptr<Connection> connection)
      : PendingCall(std::move(connection), "test") {}

  static std::shared_ptr<TestCall> receive(std::shared_ptr<Connection> connection, int from) {
    auto call = std::make_shared<TestCall>(std::move(connection));
    tutti_request_t request = TUTTI_REQUEST_INIT;
    request.collective = TUTTI_RECV;
    request.root = from;
    request.output = tutti_host(&call->value_, 1, TUTTI_I32);
    const tutti_call_options_t options = TUTTI_CALL_OPTIONS_INIT;
    call->begin(request, options);
    return call;
  }
  int settled() const { return settled_; }

 private:
  void unpack() override {}
  void ending() override {}
  void settle() override { ++settled_; }

  int32_t value_ = 0;
  std::atomic<int> settled_ = 0;
};

tutti_call_options_t within_seconds(double seconds) {
  tutti_call_options_t options = TUTTI_CALL_OPTIONS_INIT;
  options.timeout = seconds;
  return options;
}

constexpr double kOwnTimeout = 30;  // in seconds; calls end before, for another reason

// One thread calls destroy_process_group() while another is in all_reduce(t).
TEST(Lifetimes, CloseEndsACallThatIsNotCompletedByOthers) {
  std::promise<void> closed;
  std::jthread other([&] {
    const auto connection = join(1, 2, "close");
    closed.get_future().wait();
  });
  const auto connection = join(0, 2, "close");
  std::latch is_inside(1);
  std::jthread caller([&] {
    const UseGate::Use inside = connection->use("barrier");
    is_inside.count_down();
    const tutti_call_options_t options = within_seconds(kOwnTimeout);
    EXPECT_EQ(tutti_barrier(connection->comm(), &options), TUTTI_ABORTED) << tutti_error_text();
  });
  is_inside.wait();
  connection->close();
  caller.join();
  EXPECT_TRUE(connection->closed());
  EXPECT_THROW((void)connection->use("barrier"), std::runtime_error);
  closed.set_value();
}

// The Driver's thread drives calls while the program's threads wait, abort and close.
TEST(Lifetimes, ConcurrentWaitsAbortsAndClosesEndTheCalls) {
  constexpr int kRounds = 60;
  constexpr int kCalls = 4;
  const auto world = join(0, 1, "storm");
  for (int round = 0; round < kRounds; ++round) {
    const std::shared_ptr<Connection> connection = world->among({0});
    std::vector<std::shared_ptr<TestCall>> calls;
    for (int i = 0; i < kCalls; ++i) calls.push_back(TestCall::receive(connection, 0));
    std::latch begin(kCalls + 3);
    std::vector<std::jthread> threads;
    for (const auto& call : calls) {
      threads.emplace_back([&] {
        begin.arrive_and_wait();
        EXPECT_TRUE(call->wait(std::chrono::milliseconds(0)));
      });
    }
    threads.emplace_back([&] {
      begin.arrive_and_wait();
      connection->abort("watchdog");
    });
    threads.emplace_back([&] {
      begin.arrive_and_wait();
      connection->close();
    });
    threads.emplace_back([&] {
      begin.arrive_and_wait();
      // The call is refused, or ended by the abort or the close.
      try {
        TestCall::receive(connection, 0)->wait(std::chrono::milliseconds(0));
      } catch (const std::runtime_error&) {
      }
    });
    threads.clear();
    for (const auto& call : calls) {
      EXPECT_NE(text_of(call->error()), "");
      EXPECT_EQ(call->settled(), 1);
    }
  }
}

TEST(Lifetimes, AnEndedCallDoesNotKeepTheCommunicator) {
  std::promise<void> checked;
  std::jthread other([&] {
    const auto connection = join(1, 2, "kept");
    const int32_t value = 7;
    ASSERT_EQ(tutti_send(connection->comm(), tutti_host(&value, 1, TUTTI_I32), 0, nullptr),
              TUTTI_OK);
    const tutti_call_options_t options = within_seconds(kOwnTimeout);
    const tutti_status_t status = tutti_barrier(connection->comm(), &options);
    EXPECT_NE(status, TUTTI_OK);
    EXPECT_NE(status, TUTTI_TIMEOUT) << "rank 0 has left: " << tutti_error_text();
    checked.set_value();
  });
  const auto connection = join(0, 2, "kept");
  const auto call = TestCall::receive(connection, 1);
  EXPECT_TRUE(call->wait(std::chrono::milliseconds(0)));
  EXPECT_EQ(call->source(), 1);
  connection->close();
  checked.get_future().wait();
  EXPECT_EQ(call->source(), 1);
}

// A driven call that ends when the test sets `ended`.
class ToldCall final : public Driven {
 public:
  ToldCall(std::shared_ptr<Connection> connection, std::atomic<bool>& ended,
           std::promise<void> gone)
      : connection_(std::move(connection)), ended_(ended), gone_(std::move(gone)) {}
  ~ToldCall() override {
    connection_.reset();
    gone_.set_value();
  }
  const Connection* connection() const override { return connection_.get(); }
  bool ended() const override { return ended_; }
  void drive() override { ended_.wait(false); }
  void let_go(const std::string&) override {}

 private:
  std::shared_ptr<Connection> connection_;
  std::atomic<bool>& ended_;
  std::promise<void> gone_;
};

// Python has released the process group while a call was in flight.
TEST(Lifetimes, TheDriverMayHoldTheLastHandleOnTheConnection) {
  auto connection = join(0, 1, "last");
  std::atomic<bool> ended = false;
  std::promise<void> gone;
  std::future<void> is_gone = gone.get_future();
  connection->driver().add(std::make_shared<ToldCall>(connection, ended, std::move(gone)));
  connection.reset();
  ended = true;
  ended.notify_all();
  is_gone.wait();
}

}  // namespace
}  // namespace tutti::torch_backend
