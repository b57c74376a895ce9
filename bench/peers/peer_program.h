// The common part of all peer programs: they receive orders over a socket, block (without spinning)
// during Tutti's turn, and time calls as bench/measure.h does, on the same data.
//
//   PROGRAM SOCKET-NAME ...             an abstract unix socket of `tutti bench`
//   → RANK
//   ← COLLECTIVE COUNT WARM-UP TIMED    of float32, sum; COUNT elements in a block
//   → rank 0: T1 T2 ...                 microseconds, of the slowest rank
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/fd.h"
#include "bench/layout.h"

namespace tutti::bench {

struct Order {
  Layout layout;
  int warm_up = 0;
  int timed = 0;
};

// The connection to `tutti bench`, over which orders arrive. Throws Error if it cannot be opened or
// written.
class Orders {
 public:
  Orders(const std::string& socket_name, int rank, int ranks);
  // Returns the next order, or nothing after the last one.
  std::optional<Order> next();
  void reply(const std::vector<double>& times);

 private:
  const int ranks_;
  Fd socket_;
};

// The buffers of one rank for one order.
struct Buffers {
  Buffers(const Layout& layout, int rank);
  void rewrite_input() { std::ranges::copy(pristine, input.begin()); }
  // Throws Error if the output of a call is wrong.
  void check(const Layout& layout, int rank) const;

  std::vector<float> pristine;
  std::vector<float> input;
  std::vector<float> output;
};

// Times the calls of an order, and returns this rank's times in microseconds.
template <typename Rewrite, typename Barrier, typename Call>
std::vector<double> time_calls(const Order& order, Rewrite rewrite, Barrier barrier, Call call) {
  std::vector<double> times;
  for (int i = 0; i < order.warm_up + order.timed; ++i) {
    rewrite();
    barrier();
    const int64_t start = now_ns();
    call();
    const int64_t end = now_ns();
    if (i >= order.warm_up) times.push_back(static_cast<double>(end - start) / 1000);
  }
  return times;
}

// Starts a process per rank, for libraries without a launcher. If a rank fails, ends all others.
// `binding`: hardware threads of each rank; empty: no binding. Returns the exit code.
int run_ranks(int ranks, const std::vector<std::vector<int>>& binding,
              const std::function<void(int rank)>& body);

}  // namespace tutti::bench
