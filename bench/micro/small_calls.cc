// Times consecutive all-reduces of 8 bytes through the C interface; rank 0 prints microseconds per
// call. bench/micro/python_overhead compares Python's calls with these.
//
//   tutti run -n 2 -- small_calls CALLS
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "bindings/c/tutti.h"

namespace {

void check(tutti_status_t status) {
  if (status == TUTTI_OK) return;
  std::fprintf(stderr, "%s\n", tutti_error_text());
  std::exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: small_calls CALLS\n");
    return 2;
  }
  const int calls = std::atoi(argv[1]);
  tutti_comm_t* world = nullptr;
  check(tutti_init(&world, nullptr));
  double value = 1;
  double sum = 0;
  const auto run = [&](int times) {
    for (int i = 0; i < times; ++i) {
      check(tutti_all_reduce(world, tutti_host(&value, 1, TUTTI_F64),
                             tutti_host(&sum, 1, TUTTI_F64), TUTTI_SUM, nullptr));
    }
  };
  run(calls / 10);  // warms up caches and the other rank
  const auto start = std::chrono::steady_clock::now();
  run(calls);
  const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
  if (sum != tutti_size(world)) return 1;
  if (tutti_rank(world) == 0) std::printf("%.4f\n", time.count() / calls);
  tutti_destroy(world);
}
