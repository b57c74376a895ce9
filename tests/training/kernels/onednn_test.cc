#include "training/kernels/cpu/onednn.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <csignal>
#include <thread>
#include <vector>

#include "tests/training/support/host_tensor.h"
#include "training/kernels/gemm.h"

namespace tutti::training {
namespace {

TEST(Cache, KeepsTheEntriesThatWereUsedLast) {
  onednn::Cache<int, int> cache(3);
  std::vector<int> made;
  const auto get = [&](int key) {
    return cache.get(key, [&](int number) {
      made.push_back(number);
      return 10 * number;
    });
  };
  for (const int key : {1, 2, 3, 1, 2, 3}) EXPECT_EQ(get(key), 10 * key);
  EXPECT_EQ(made, (std::vector{1, 2, 3})) << "once each";
  get(1);
  get(4);  // evicts 2
  EXPECT_EQ(cache.size(), 3u);
  for (const int key : {1, 3, 4}) get(key);
  EXPECT_EQ(made, (std::vector{1, 2, 3, 4}));
  EXPECT_EQ(get(2), 20);
  EXPECT_EQ(made, (std::vector{1, 2, 3, 4, 2}));
}

TEST(Cache, IsUnchangedAfterAFailure) {
  onednn::Cache<int, int> cache(1);
  const auto ten = [](int) { return 10; };
  cache.get(1, ten);
  EXPECT_THROW(cache.get(2, [](int) -> int { throw Error(ErrorCode::internal, "no"); }), Error);
  EXPECT_EQ(cache.get(1, [](int) { return 11; }), 10);
}

// There are more shapes than the cache holds. Primitives that were evicted are created again and
// give the same bits.
TEST(Primitives, AnyNumberOfShapesGivesTheSameBits) {
  const auto product = [](int64_t rows) {
    const testing::HostTensor a = testing::random_tensor(DType::f32, rows, 3, 1);
    const testing::HostTensor b = testing::random_tensor(DType::f32, 3, 2, 2);
    testing::HostTensor c(DType::f32, rows, 2);
    gemm(a, Transpose::no, b, Transpose::no, c);
    return testing::doubles(c);
  };
  const std::vector<double> before = product(1);
  for (int64_t rows = 2; rows < static_cast<int64_t>(onednn::kMostPrimitives) + 10; ++rows) {
    product(rows);
  }
  EXPECT_EQ(product(1), before);
}

// Counts the signals whose handlers ran on one thread within [low, high), and those elsewhere.
struct Stack {
  const char* low = nullptr;
  const char* high = nullptr;
  std::atomic<int> within{0}, outside{0};
} stack;

void note_stack(int) {
  const char here = 0;
  ++(&here >= stack.low && &here < stack.high ? stack.within : stack.outside);
}

void find_stack() {
  pthread_attr_t attributes;
  void* low = nullptr;
  size_t size = 0;
  ASSERT_EQ(pthread_getattr_np(pthread_self(), &attributes), 0);
  ASSERT_EQ(pthread_attr_getstack(&attributes, &low, &size), 0);
  pthread_attr_destroy(&attributes);
  stack.low = static_cast<const char*>(low);
  stack.high = stack.low + size;
}

// Some of oneDNN's products use the stack pointer as a pointer to their data, so that a signal
// handler would overwrite the data below it.
TEST(Primitives, SignalsDoNotInterruptPrimitives) {
  struct sigaction ours = {}, before = {};
  ours.sa_handler = note_stack;
  ASSERT_EQ(sigaction(SIGUSR1, &ours, &before), 0);
  std::atomic<bool> ready = false, over = false;
  std::thread computes([&] {
    find_stack();
    ready = true;
    const testing::HostTensor a = testing::random_tensor(DType::f32, 96, 256, 1);
    const testing::HostTensor b = testing::random_tensor(DType::f32, 256, 96, 2);
    testing::HostTensor c(DType::f32, 96, 96);
    for (int i = 0; i < 2000 || stack.within == 0; ++i) gemm(a, Transpose::no, b, Transpose::no, c);
    over = true;
  });
  while (!ready) std::this_thread::yield();
  while (!over) pthread_kill(computes.native_handle(), SIGUSR1);
  computes.join();
  EXPECT_EQ(stack.outside, 0);
  sigaction(SIGUSR1, &before, nullptr);
}

}  // namespace
}  // namespace tutti::training
