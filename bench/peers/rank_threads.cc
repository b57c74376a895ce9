#include "bench/peers/rank_threads.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <thread>

namespace tutti::bench {

std::vector<double> RankThreads::slowest() const {
  std::vector<double> slow = times_[0];
  for (const std::vector<double>& own : times_) {
    for (size_t i = 0; i < slow.size(); ++i) slow[i] = std::max(slow[i], own[i]);
  }
  return slow;
}

void RankThreads::serve_rank(const char* socket, int rank,
                             const std::function<Runner(int rank)>& make) {
  Orders orders(socket, rank, ranks_);
  const Runner run = make(rank);
  while (const std::optional<Order> order = orders.next()) {
    times_[static_cast<size_t>(rank)] = run(*order);
    meet();
    if (rank == 0) orders.reply(slowest());
  }
}

int RankThreads::serve(const char* socket, const std::function<Runner(int rank)>& make) {
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks_; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        serve_rank(socket, rank, make);
      } catch (const std::exception& error) {
        std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
        std::_Exit(1);
      }
    });
  }
  threads.clear();
  return 0;
}

}  // namespace tutti::bench
