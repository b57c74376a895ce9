// Joins the job twice in sequence, like a program that creates communicators on demand.
#include <cstdio>
#include <exception>
#include <span>
#include <vector>

#include "collectives/communicator.h"

int main() {
  try {
    int sum = 0;
    for (int round = 0; round < 2; ++round) {
      tutti::Communicator world = tutti::Communicator::init();
      std::vector<int32_t> ones(3, 1);
      world.all_reduce(std::span(ones));
      sum += ones[2];
      if (round == 1 && world.rank() == 0) std::printf("%d\n", sum);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
