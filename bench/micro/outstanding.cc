// Times the start of a message while many others are outstanding. The time should not depend on
// their number:
//
//   bazel-bin/bench/micro/outstanding
#include <cstdint>
#include <cstdio>
#include <exception>
#include <span>
#include <vector>

#include "base/deadline.h"
#include "bench/micro/pair.h"

namespace tutti::bench {
namespace {

double microseconds_each(int64_t since, size_t calls) {
  return static_cast<double>(now_ns() - since) / 1e3 / static_cast<double>(calls);
}

void run(Communicator& sender, Communicator& receiver, size_t outstanding) {
  std::vector<int64_t> in(outstanding);
  const std::vector<int64_t> out(outstanding, 1);
  std::vector<Work> receives;
  std::vector<Work> sends;
  receives.reserve(outstanding);
  sends.reserve(outstanding);
  int64_t since = now_ns();
  for (int64_t& value : in) {
    receives.push_back(receiver.recv_async(buffer_of(std::span(&value, 1)), sender.rank()));
  }
  const double receiving = microseconds_each(since, outstanding);
  since = now_ns();
  for (const int64_t& value : out) {
    sends.push_back(sender.send_async(const_buffer_of(std::span(&value, 1)), receiver.rank()));
  }
  const double sending = microseconds_each(since, outstanding);
  since = now_ns();
  while (receives.back().poll() == WorkState::in_flight) sends.back().poll();
  std::printf("%8zu %12.2f %12.2f %12.2f\n", outstanding, receiving, sending,
              microseconds_each(since, outstanding));
}

}  // namespace
}  // namespace tutti::bench

int main() {
  try {
    auto [first, second] = tutti::bench::make_pair_of_ranks();
    std::printf("messages     recv us      send us   arrival us\n");
    for (const size_t outstanding : {1000, 1000, 4000, 16'000, 64'000}) {
      tutti::bench::run(first, second, outstanding);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
