// Times the creation of a communicator, its first call and its destruction, on all ranks at once:
//
//   tutti run -n 8 bazel-bin/bench/micro/communicators
#include <cstdint>
#include <cstdio>
#include <exception>
#include <optional>
#include <span>
#include <vector>

#include "base/deadline.h"
#include "base/median.h"
#include "collectives/communicator.h"

namespace tutti::bench {
namespace {

constexpr int kRounds = 201;

double microseconds_since(int64_t& start) {
  const int64_t before = start;
  start = now_ns();
  return static_cast<double>(start - before) / 1e3;
}

void run() {
  Communicator world = Communicator::init();
  std::vector<double> making;
  std::vector<double> first_call;
  std::vector<double> freeing;
  for (int round = 0; round < kRounds; ++round) {
    world.barrier();
    int64_t time = now_ns();
    std::optional<Communicator> made = world.duplicate();
    making.push_back(microseconds_since(time));
    int64_t one = 1;
    made->all_reduce(std::span(&one, 1));
    first_call.push_back(microseconds_since(time));
    made.reset();
    freeing.push_back(microseconds_since(time));
  }
  if (world.rank() != 0) return;
  std::printf(
      "%d ranks: %.0f us to make a communicator, %.0f its first all-reduce, %.0f to free it\n",
      world.size(), median(making), median(first_call), median(freeing));
}

}  // namespace
}  // namespace tutti::bench

int main() {
  try {
    tutti::bench::run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
