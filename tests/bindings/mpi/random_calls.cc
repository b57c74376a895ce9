// Makes random collective calls, blocking or not, several in flight, mixed with messages. Completes
// them by any of MPI's functions, and compares them with results that the ranks compute themselves.
//
//   random_calls ROUNDS SEED [wild]     wild: integers of all sizes
#include <mpi.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "tests/bindings/mpi/trial.h"

namespace tutti::test {
namespace {

constexpr int kMessage = 5000;  // number of integers in a message

class Batch {
 public:
  Batch(const Group& group, RandomDraws& dice) : group_(group), dice_(dice) {}

  void run() {
    const bool blocks = dice_.draw(3) == 0;
    const int64_t calls = blocks ? 1 : 1 + dice_.draw(5);
    dice_.wild = wild_ && blocks;
    for (int64_t i = 0; i < calls; ++i) {
      trials_.push_back(dice_.flip() ? random_reduction(group_, dice_)
                                     : random_movement(group_, dice_));
    }
    if (blocks) {
      trials_[0].call(nullptr, dice_.flip());
    } else {
      start();
      complete();
    }
    for (const Trial& trial : trials_) check(trial);
    if (!blocks) expect("a message", group_, received_, std::vector<int>(kMessage, 7 + left()));
  }

  static bool wild_;

 private:
  int left() const { return (group_.rank + group_.size - 1) % group_.size; }

  // Sends a message round the ranks, and possibly makes a blocking call, while other calls are in
  // flight.
  void start() {
    sent_.assign(kMessage, 7 + group_.rank);
    received_.assign(kMessage, 0);
    requests_.resize(trials_.size() + 2);
    const bool large = dice_.flip();
    const auto middle = static_cast<size_t>(dice_.draw(static_cast<int64_t>(trials_.size())));
    MPI_Irecv(received_.data(), kMessage, MPI_INT, left(), 3, group_.comm, &requests_[0]);
    for (size_t i = 0; i < trials_.size(); ++i) {
      trials_[i].call(&requests_[i + 2], large);
      if (i == middle) {
        MPI_Isend(sent_.data(), kMessage, MPI_INT, (group_.rank + 1) % group_.size, 3, group_.comm,
                  &requests_[1]);
      }
    }
    if (dice_.flip()) {
      int one = 1;
      int sum = 0;
      MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, group_.comm);
      expect<int>("Allreduce among calls under way", group_, {sum}, {group_.size});
    }
  }

  // Completes the calls. Each rank draws the functions by which, and the order in which, it does
  // so.
  void complete() {
    std::ranges::shuffle(requests_, dice_.own);
    const int n = static_cast<int>(requests_.size());
    std::vector<MPI_Status> statuses(requests_.size());
    std::vector<int> indices(requests_.size());
    int done = 0;
    int index = 0;
    switch (dice_.draw_own(8)) {
      case 0:
        MPI_Waitall(n, requests_.data(), statuses.data());
        break;
      case 1:
        for (MPI_Request& request : requests_) MPI_Wait(&request, MPI_STATUS_IGNORE);
        break;
      case 2:
        for (int i = 0; i < n; ++i) {
          MPI_Waitany(n, requests_.data(), &index, MPI_STATUS_IGNORE);
          expect<bool>("Waitany's index", group_, {index >= 0 && index < n}, {true});
        }
        break;
      case 3:
        for (int left = n; left > 0; left -= done) {
          MPI_Waitsome(n, requests_.data(), &done, indices.data(), statuses.data());
          if (done == MPI_UNDEFINED) break;
        }
        break;
      case 4:
        while (done == 0) MPI_Testall(n, requests_.data(), &done, MPI_STATUSES_IGNORE);
        break;
      case 5:
        for (int left = n; left > 0;) {
          MPI_Testany(n, requests_.data(), &index, &done, MPI_STATUS_IGNORE);
          if (done != 0) --left;
        }
        break;
      case 6:
        for (int left = n; left > 0; left -= done) {
          MPI_Testsome(n, requests_.data(), &done, indices.data(), MPI_STATUSES_IGNORE);
        }
        break;
      default:
        for (MPI_Request& request : requests_) {
          for (done = 0; done == 0;) {
            MPI_Request_get_status(request, &done, MPI_STATUS_IGNORE);
          }
          MPI_Test(&request, &done, MPI_STATUS_IGNORE);
          expect<int>("Test after Request_get_status", group_, {done}, {1});
        }
        break;
    }
    for (const MPI_Request& request : requests_) {
      expect<bool>("a request after its end", group_, {request == MPI_REQUEST_NULL}, {true});
    }
  }

  void check(const Trial& trial) {
    try {
      trial.check();
    } catch (const std::exception& error) {
      expect<bool>(trial.what + ": " + error.what(), group_, {false}, {true});
    }
  }

  const Group& group_;
  RandomDraws& dice_;
  std::vector<Trial> trials_;
  std::vector<MPI_Request> requests_;
  std::vector<int> sent_;
  std::vector<int> received_;
};

bool Batch::wild_ = false;

void run(int64_t rounds, uint64_t seed) {
  const Group world("world", MPI_COMM_WORLD);
  MPI_Comm copy = MPI_COMM_NULL;
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm reverse = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &copy);
  MPI_Comm_split(MPI_COMM_WORLD, world.rank % 2, 0, &half);
  MPI_Comm_split(MPI_COMM_WORLD, 0, -world.rank, &reverse);
  const std::vector<Group> groups = {world, Group("a duplicate", copy), Group("half", half),
                                     Group("the reverse", reverse)};
  RandomDraws dice{.common = std::mt19937_64(seed),
                   .own = std::mt19937_64(seed * 1000 + static_cast<uint64_t>(world.rank))};
  for (int64_t round = 0; round < rounds; ++round) {
    // Both halves draw the same numbers and make the same calls in their own communicators.
    const Group& group = groups[static_cast<size_t>(dice.draw(4))];
    std::mt19937_64 next(dice.common());
    Batch(group, dice).run();
    dice.common = next;  // equal on all ranks, although the halves have drawn different numbers
    if (wrong == 0) continue;
    std::fprintf(stderr, "in round %ld of seed %lu\n", round, seed);
    MPI_Abort(MPI_COMM_WORLD, 1);  // the others would wait
  }
  MPI_Comm_free(&copy);
  MPI_Comm_free(&half);
  MPI_Comm_free(&reverse);
}

}  // namespace
}  // namespace tutti::test

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE,
                  &provided);  // at this level MPI libraries take more locks
  const int64_t rounds = argc > 1 ? std::atol(argv[1]) : 200;
  const auto seed = static_cast<uint64_t>(argc > 2 ? std::atol(argv[2]) : 1);
  tutti::test::Batch::wild_ = argc > 3 && std::strcmp(argv[3], "wild") == 0;
  tutti::test::run(rounds, seed);
  return tutti::test::finish();
}
