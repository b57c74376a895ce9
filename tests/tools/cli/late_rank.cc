// Makes all-reduces without end, in which one rank (-1: each in turn) is late, for top_test. Rank 0
// prints a line after the first call.
//
//   late_rank RANK MILLISECONDS [CALLS [spare]]
//
// With `spare` the last rank does not take part: it waits in a barrier for the others. After an
// error it exits at once, as C programs do.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <span>
#include <thread>
#include <vector>

#include "collectives/communicator.h"

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const int late = std::atoi(argv[1]);
  const std::chrono::milliseconds delay(std::atoi(argv[2]));
  const long calls = argc > 3 ? std::atol(argv[3]) : -1;
  tutti::Communicator world;
  try {
    world = tutti::Communicator::init();
    tutti::Communicator comm = world;
    std::vector<float> values(1024, 1);
    if (argc > 4) {
      const bool is_spare = world.rank() == world.size() - 1;
      comm = world.split(is_spare ? 1 : 0, world.rank());
      if (is_spare) world.barrier();
    }
    for (long call = 0; call != calls; ++call) {
      if (call > 0 && (late < 0 || comm.rank() == late)) std::this_thread::sleep_for(delay);
      comm.all_reduce(std::span(values));
      if (call == 0 && comm.rank() == 0) {
        std::puts("ready");
        std::fflush(stdout);
      }
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    std::exit(1);
  }
}
