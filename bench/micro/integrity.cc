// Measures the processor time of all-reduces and messages over TCP on loopback, in alternation for
// two pairs of ranks, of which one pair verifies hashes. One thread drives both ranks of a pair, so
// that no rank waits, and other programs on the machine do not affect the result.
#include <time.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>
#include <span>
#include <vector>

#include "base/median.h"
#include "base/reduce.h"
#include "base/settings.h"
#include "bench/micro/pair.h"

namespace tutti::bench {
namespace {

using Pair = std::array<Communicator, 2>;
using Values = std::array<std::vector<float>, 2>;
using Start = std::function<Work(Communicator&, Buffer)>;

constexpr size_t kLargest = 64 << 20;
constexpr size_t kBytesOfASize = size_t{1} << 30;
constexpr size_t kMostCalls = 3000;

Pair pair_with(const char* integrity) {
  settings().set("TUTTI_INTEGRITY", integrity);
  return make_pair_of_ranks();
}

double processor_us() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
}

double call_us(const Start& start, Pair& pair, Values& values, size_t count) {
  const double begin = processor_us();
  std::array<Work, 2> works;
  for (size_t rank = 0; rank < 2; ++rank) {
    works[rank] = start(pair[rank], buffer_of(std::span(values[rank]).first(count)));
  }
  for (bool over = false; !over;) {
    over = true;
    for (Work& work : works) over = work.test() && over;
  }
  return processor_us() - begin;
}

void measure(const char* name, const Start& start, Pair& off, Pair& on, Values& values,
             size_t count) {
  std::array<std::vector<double>, 2> times;
  std::vector<double> ratios;
  const size_t bytes = count * sizeof(float);
  const size_t calls = std::clamp<size_t>(kBytesOfASize / (bytes + (64 << 10)), 20, kMostCalls);
  for (size_t i = 0; i < calls; ++i) {
    times[0].push_back(call_us(start, off, values, count));
    times[1].push_back(call_us(start, on, values, count));
    ratios.push_back(times[1].back() / times[0].back());
  }
  std::printf("%-10s %9zu B  off %9.1f us  on %9.1f us  ratio %5.3f\n", name, bytes,
              median(times[0]), median(times[1]), median(ratios));
  std::fflush(stdout);
}

Work all_reduce(Communicator& comm, Buffer buffer) {
  return comm.all_reduce_async(as_const(buffer), buffer, ReduceOp::max);
}

// Starts a message from rank 0 to rank 1.
Work message(Communicator& comm, Buffer buffer) {
  return comm.rank() == 0 ? comm.send_async(as_const(buffer), 1) : comm.recv_async(buffer, 0);
}

void run() {
  settings().set("TUTTI_TRANSPORT", "tcp");
  settings().set("TUTTI_LOG", "error");
  Pair off = pair_with("off");
  Pair on = pair_with("on");
  std::printf("hashes by %s\n",
              name(std::min(selected_instruction_set(), InstructionSet::avx2)).data());
  Values values;
  for (std::vector<float>& some : values) some.assign(kLargest / sizeof(float), 1);
  for (const size_t bytes :
       {8, 1 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 16 << 20, 64 << 20}) {
    measure("all_reduce", all_reduce, off, on, values, bytes / sizeof(float));
    measure("message", message, off, on, values, bytes / sizeof(float));
  }
}

}  // namespace
}  // namespace tutti::bench

int main() {
  tutti::bench::run();
  return 0;
}
