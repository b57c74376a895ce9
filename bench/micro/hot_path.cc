// Runs one rank's part of an all-reduce of two ranks, when the other rank's message has arrived.
// bench/micro/count_instructions runs it under callgrind, which counts the instructions within
// counted_call().
//
//   hot_path BYTES CALLS
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "bench/micro/pair.h"

namespace {

using tutti::Buffer;
using tutti::Communicator;

[[gnu::noinline]] void counted_call(Communicator& comm, const Buffer& input, const Buffer& output) {
  comm.all_reduce(tutti::as_const(input), output);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: hot_path BYTES CALLS\n");
    return 2;
  }
  const size_t count = std::strtoul(argv[1], nullptr, 10) / sizeof(float);
  const int calls = std::atoi(argv[2]);
  auto [first, second] = tutti::bench::make_pair_of_ranks();
  std::vector<float> values(count, 1);
  std::vector<float> others(count, 2);
  std::vector<float> sum(count);
  std::vector<float> other_sum(count);
  for (int i = 0; i < calls; ++i) {
    const Buffer input = tutti::buffer_of(std::span(values));
    tutti::Work work =
        first.all_reduce_async(tutti::as_const(input), tutti::buffer_of(std::span(sum)));
    counted_call(second, tutti::buffer_of(std::span(others)),
                 tutti::buffer_of(std::span(other_sum)));
    work.wait();
    if (count > 0 && (sum.back() != 3 || other_sum.back() != 3)) return 1;
  }
  return 0;
}
