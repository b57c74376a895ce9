// Nothing leaks: descriptors, threads and mappings are gone when a communicator is.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "base/deadline.h"
#include "base/settings.h"
#include "collectives/communicator.h"
#include "tests/support/ranks.h"

namespace tutti {
namespace {

size_t entries_of(const char* folder) {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}

size_t mappings() {
  std::ifstream file("/proc/self/maps");
  size_t count = 0;
  for (std::string line; std::getline(file, line);) count += line.find("memfd:tutti") != line.npos;
  return count;
}

// A thread that was joined may stay in /proc for a moment: the kernel wakes the joiner first.
size_t threads_at_rest(size_t expected) {
  const Deadline deadline = Deadline::after(std::chrono::seconds(10));
  size_t count = 0;
  while ((count = entries_of("/proc/self/task")) > expected && !deadline.passed()) {
    std::this_thread::yield();
  }
  return count;
}

class Leaks : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { settings().set("TUTTI_TRANSPORT", GetParam()); }
  void TearDown() override { settings().set("TUTTI_TRANSPORT", "auto"); }
};

INSTANTIATE_TEST_SUITE_P(Both, Leaks, ::testing::Values("shm", "tcp"),
                         [](const auto& info) { return info.param; });

TEST_P(Leaks, ThousandCommunicators) {
  const auto run = [](int communicators) {
    testing::run_ranks(2, [communicators](const Job& job) {
      Communicator world = Communicator::init(job);
      for (int i = 0; i < communicators; ++i) {
        Communicator copy = world.duplicate();
        int32_t one = 1;
        copy.all_reduce(std::span(&one, 1));
        ASSERT_EQ(one, 2);
      }
    });
  };
  run(1);
  const size_t descriptors = entries_of("/proc/self/fd");
  const size_t threads = entries_of("/proc/self/task");  // the sanitizers have one of their own
  run(1000);
  EXPECT_EQ(entries_of("/proc/self/fd"), descriptors);
  EXPECT_LE(threads_at_rest(threads), threads);
  EXPECT_EQ(mappings(), 0);
}

}  // namespace
}  // namespace tutti
