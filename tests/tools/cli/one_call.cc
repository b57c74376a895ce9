// Makes one call, checks its result and exits at once; slow_link_test runs it on every rank. Prints
// nothing on success.
//
//   one_call COLLECTIVE COUNT
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "collectives/communicator.h"

namespace tutti {
namespace {

using Values = std::vector<int32_t>;

// Element i of a rank's input.
int32_t value_at(int rank, uint64_t i) { return rank * 7 + static_cast<int32_t>(i % 1000); }

int32_t sum_at(int first, int end, uint64_t i) {
  int32_t sum = 0;
  for (int r = first; r < end; ++r) sum += value_at(r, i);
  return sum;
}

double thread_cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Returns the processor time that this rank uses while it waits one second for rank 0. Measures it
// several times and returns the minimum, because other programs slow down the same work.
double waiting_seconds(Communicator& comm) {
  constexpr int kTries = 3;
  double least = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kTries; ++i) {
    comm.barrier();
    if (comm.rank() == 0) std::this_thread::sleep_for(std::chrono::seconds(1));
    const double before = thread_cpu_seconds();
    comm.barrier();
    least = std::min(least, thread_cpu_seconds() - before);
  }
  return least;
}

// Returns the number of wrong elements. "wait": nonzero if waiting took much processor time.
uint64_t call(const std::string& collective, uint64_t count) {
  Communicator comm = Communicator::init();
  const int rank = comm.rank();
  const auto p = static_cast<uint64_t>(comm.size());
  Values in(p * count);
  for (uint64_t i = 0; i < in.size(); ++i) in[i] = value_at(rank, i);
  Values out(p * count, -1);
  const auto input = [&](uint64_t n) { return ConstBuffer{in.data(), n, DType::i32}; };
  const auto output = [&](uint64_t n) { return Buffer{out.data(), n, DType::i32}; };
  uint64_t wrong = 0;
  const auto expect = [&](uint64_t n, auto&& expected) {
    for (uint64_t i = 0; i < n; ++i) wrong += out[i] == expected(i) ? 0 : 1;
  };
  const auto block = [&](uint64_t i) { return static_cast<int>(i / count); };
  if (collective == "broadcast") {
    comm.broadcast(input(count), output(count), 0);
    expect(count, [](uint64_t i) { return value_at(0, i); });
  } else if (collective == "all_reduce") {
    comm.all_reduce(input(count), output(count));
    expect(count, [&](uint64_t i) { return sum_at(0, comm.size(), i); });
  } else if (collective == "reduce") {
    comm.reduce(input(count), output(count), ReduceOp::sum, 1);
    expect(rank == 1 ? count : 0, [&](uint64_t i) { return sum_at(0, comm.size(), i); });
  } else if (collective == "reduce_scatter") {
    comm.reduce_scatter(input(p * count), output(count));
    expect(count, [&](uint64_t i) {
      return sum_at(0, comm.size(), static_cast<uint64_t>(rank) * count + i);
    });
  } else if (collective == "all_gather") {
    comm.all_gather(input(count), output(p * count));
    expect(p * count, [&](uint64_t i) { return value_at(block(i), i % count); });
  } else if (collective == "gather") {
    comm.gather(input(count), output(p * count), 1);
    expect(rank == 1 ? p * count : 0, [&](uint64_t i) { return value_at(block(i), i % count); });
  } else if (collective == "scatter") {
    comm.scatter(input(p * count), output(count), 1);
    expect(count, [&](uint64_t i) { return value_at(1, static_cast<uint64_t>(rank) * count + i); });
  } else if (collective == "all_to_all") {
    comm.all_to_all(input(p * count), output(p * count));
    expect(p * count, [&](uint64_t i) {
      return value_at(block(i), static_cast<uint64_t>(rank) * count + i % count);
    });
  } else if (collective == "scan") {
    comm.scan(input(count), output(count));
    expect(count, [&](uint64_t i) { return sum_at(0, rank + 1, i); });
  } else if (collective == "exscan") {
    comm.exscan(input(count), output(count));
    expect(rank == 0 ? 0 : count, [&](uint64_t i) { return sum_at(0, rank, i); });
  } else if (collective == "barrier") {
    comm.barrier();
  } else if (collective == "wait") {
    const double spent = waiting_seconds(comm);
    wrong = rank > 0 && spent > 0.005 ? 1 : 0;
  } else if (collective == "send") {  // each rank sends to the next one
    if (rank > 0) comm.recv(output(count), rank - 1);
    if (rank + 1 < comm.size()) comm.send(input(count), rank + 1);
    expect(rank > 0 ? count : 0, [&](uint64_t i) { return value_at(rank - 1, i); });
  } else {
    throw Error(ErrorCode::invalid_argument, "no collective " + collective);
  }
  return wrong;
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  try {
    const uint64_t wrong = tutti::call(argv[1], std::strtoull(argv[2], nullptr, 10));
    if (wrong > 0) std::fprintf(stderr, "%ju elements are wrong\n", static_cast<uintmax_t>(wrong));
    return wrong == 0 ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
