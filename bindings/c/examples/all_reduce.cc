// Computes the mean of an array over all ranks:
//
//   c++ -std=c++20 all_reduce.cc $(pkg-config --cflags --libs tutti)
//   tutti run -n 4 -- ./a.out
#include <cstdio>
#include <tutti/tutti.hpp>
#include <vector>

int main() {
  try {
    tutti::Communicator world = tutti::Communicator::init();
    std::vector<float> values(1000, static_cast<float>(world.rank()));
    world.all_reduce(values, tutti::ReduceOp::avg);  // the mean, in place
    std::printf("rank %d of %d: the mean is %g\n", world.rank(), world.size(), values.front());
  } catch (const tutti::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
