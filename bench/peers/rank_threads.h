// Runs the ranks of a GPU peer as threads of one process, with one GPU each if there are enough.
#pragma once

#include <barrier>
#include <functional>
#include <vector>

#include "bench/peers/peer_program.h"

namespace tutti::bench {

class RankThreads {
 public:
  // Function that runs an order on one rank and returns the microseconds of each timed call.
  using Runner = std::function<std::vector<double>(const Order&)>;

  explicit RankThreads(int ranks)
      : ranks_(ranks), barrier_(ranks), times_(static_cast<size_t>(ranks)) {}

  int size() const { return ranks_; }
  // Blocks until all ranks have called meet().
  void meet() { barrier_.arrive_and_wait(); }

  // Serves orders until there are no more, and replies with the times of the slowest rank. Calls
  // `make(rank)` in that rank's thread. A rank that throws ends the process with code 1, because
  // the others may be waiting for it. Returns the exit code.
  int serve(const char* socket, const std::function<Runner(int rank)>& make);

 private:
  std::vector<double> slowest() const;
  void serve_rank(const char* socket, int rank, const std::function<Runner(int rank)>& make);

  const int ranks_;
  std::barrier<> barrier_;
  std::vector<std::vector<double>> times_;
};

}  // namespace tutti::bench
