// Splits the job's communicator repeatedly and checks that each part works. chaos_test aborts
// communicators of this program, also during a split.
//
//   splits COUNT
//
// After an error the program exits at once, as C programs do.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <span>
#include <vector>

#include "collectives/communicator.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  tutti::Communicator world;
  try {
    world = tutti::Communicator::init();
    for (int i = 0; i < std::atoi(argv[1]); ++i) {
      tutti::Communicator part = world.split(i % 2 == 0 ? 0 : world.rank() % 2);
      std::vector<int32_t> ranks = {1};
      part.all_reduce(std::span(ranks));
      if (ranks[0] != part.size()) return 1;
    }
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    std::exit(1);
  }
}
