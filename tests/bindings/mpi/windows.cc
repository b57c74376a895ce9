// Makes random accesses to windows of all sizes, on several communicators and several at a time.
// Then runs algorithms that need atomic updates and locks. Rank 0 prints a digest of the windows'
// contents, which is the same with every MPI library.
//
//   windows ROUNDS SEED [served|careful]     draws accesses of this Scope (default: all)
//   windows killed       the last rank is killed while others wait for its lock
#include <mpi.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>

#include "tests/bindings/mpi/window_trial.h"

namespace tutti::test {
namespace {

constexpr int kEpochsOfAWindow = 4;

uint64_t run_windows(const Group& group, RandomDraws& dice, Scope scope) {
  std::vector<std::unique_ptr<WindowTrial>> trials(static_cast<size_t>(1 + dice.draw(2)));
  for (auto& trial : trials) trial = std::make_unique<WindowTrial>(group, dice, scope);
  for (int i = 0; i < kEpochsOfAWindow; ++i) {
    for (auto& trial : trials) trial->draw();
    for (auto& trial : trials) trial->open();
    for (auto& trial : trials) trial->access();
    for (auto& trial : trials) trial->close();
    for (auto& trial : trials) trial->check();
  }
  uint64_t digest = 0;
  for (auto& trial : trials) digest = digest * 31 + trial->digest();
  return digest;
}

void run_random(int64_t rounds, uint64_t seed, Scope scope) {
  const Group world("world", MPI_COMM_WORLD);
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm reverse = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, world.rank % 2, 0, &half);
  MPI_Comm_split(MPI_COMM_WORLD, 0, -world.rank, &reverse);
  const std::vector<Group> groups = {world, Group("half", half), Group("the reverse", reverse)};
  RandomDraws dice{.common = std::mt19937_64(seed),
                   .own = std::mt19937_64(seed * 1000 + static_cast<uint64_t>(world.rank))};
  uint64_t digest = 0;
  for (int64_t round = 0; round < rounds; ++round) {
    const Group& group = groups[static_cast<size_t>(dice.draw(3))];
    std::mt19937_64 next(dice.common());
    // Tutti does not handle windows of a single rank, and Open MPI 4.1 confuses windows that two
    // halves create at the same time.
    const bool is_odd_half = &group == &groups[1] && world.rank % 2 != 0;
    if (scope == Scope::all || (group.size > 1 && !is_odd_half)) {
      digest = digest * 31 + run_windows(group, dice, scope);
    }
    dice.common = next;
    if (wrong == 0) continue;
    std::fprintf(stderr, "in round %ld of seed %lu\n", round, seed);
    MPI_Abort(MPI_COMM_WORLD, 1);  // the others would wait
  }
  uint64_t all = 0;
  PMPI_Reduce(&digest, &all, 1, MPI_UINT64_T, MPI_BXOR, 0, MPI_COMM_WORLD);
  if (world.rank == 0) std::printf("digest %016lx\n", all);
  MPI_Comm_free(&half);
  MPI_Comm_free(&reverse);
}

// A window of 8 integers on each rank, initially 0.
class Counters {
 public:
  explicit Counters(const Group& group) {
    MPI_Win_allocate(8 * sizeof(int64_t), sizeof(int64_t), MPI_INFO_NULL, group.comm,
                     static_cast<void*>(&memory_), &win_);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, group.rank, 0, win_);
    std::fill_n(memory_, 8, 0);
    MPI_Win_unlock(group.rank, win_);
    MPI_Barrier(group.comm);
  }
  ~Counters() { MPI_Win_free(&win_); }
  Counters(const Counters&) = delete;
  Counters& operator=(const Counters&) = delete;
  MPI_Win win() const { return win_; }
  // Returns a counter as its owner reads it when no epoch is open.
  int64_t at(const Group& group, int i) const {
    MPI_Win_lock(MPI_LOCK_SHARED, group.rank, 0, win_);
    const int64_t value = memory_[i];
    MPI_Win_unlock(group.rank, win_);
    return value;
  }

 private:
  int64_t* memory_ = nullptr;
  MPI_Win win_ = MPI_WIN_NULL;
};

// Checks that each ticket is drawn once although all ranks draw concurrently.
void draw_tickets(const Group& group) {
  constexpr int kEach = 200;
  const Counters counters(group);
  std::vector<int64_t> own(kEach);
  const int64_t one = 1;
  MPI_Win_fence(0, counters.win());
  for (int64_t& ticket : own) {
    MPI_Fetch_and_op(&one, &ticket, MPI_INT64_T, 0, 3, MPI_SUM, counters.win());
  }
  MPI_Win_fence(0, counters.win());
  std::vector<int64_t> all(own.size() * static_cast<size_t>(group.size));
  PMPI_Allgather(own.data(), kEach, MPI_INT64_T, all.data(), kEach, MPI_INT64_T, group.comm);
  std::ranges::sort(all);
  std::vector<int64_t> wanted(all.size());
  std::iota(wanted.begin(), wanted.end(), 0);
  expect<int64_t>("tickets", group, all, wanted);
}

// Increments a number under an exclusive lock, and under a spin lock implemented with
// compare-and-swap.
void count_under_locks(const Group& group) {
  constexpr int kEach = 50;
  const Counters counters(group);
  MPI_Win win = counters.win();
  const int last = group.size - 1;
  for (int i = 0; i < kEach; ++i) {
    int64_t value = 0;
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, last, 0, win);
    MPI_Get(&value, 1, MPI_INT64_T, last, 1, 1, MPI_INT64_T, win);
    MPI_Win_flush(last, win);
    ++value;
    MPI_Put(&value, 1, MPI_INT64_T, last, 1, 1, MPI_INT64_T, win);
    MPI_Win_unlock(last, win);
  }
  MPI_Win_lock_all(0, win);
  for (int i = 0; i < kEach; ++i) {
    const int64_t unlocked = 0;
    const int64_t locked = 1;
    int64_t found = 1;
    while (found != 0) {
      MPI_Compare_and_swap(&locked, &unlocked, &found, MPI_INT64_T, 0, 5, win);
      MPI_Win_flush(0, win);
    }
    int64_t value = 0;
    MPI_Get(&value, 1, MPI_INT64_T, last, 2, 1, MPI_INT64_T, win);
    MPI_Win_flush(last, win);
    ++value;
    MPI_Put(&value, 1, MPI_INT64_T, last, 2, 1, MPI_INT64_T, win);
    MPI_Win_flush(last, win);
    MPI_Accumulate(&unlocked, 1, MPI_INT64_T, 0, 5, 1, MPI_INT64_T, MPI_REPLACE, win);
    MPI_Win_flush(0, win);
  }
  MPI_Win_unlock_all(win);
  MPI_Barrier(group.comm);
  const int64_t wanted = group.rank == last ? int64_t{kEach} * group.size : 0;
  expect<int64_t>("counts under locks", group, {counters.at(group, 1), counters.at(group, 2)},
                  {wanted, wanted});
}

// The epoch must stay open while a rank waits for a message that another rank sends within it.
void send_within_epochs(const Group& group) {
  const Counters counters(group);
  const int left = (group.rank + group.size - 1) % group.size;
  const int right = (group.rank + 1) % group.size;
  const int64_t own = group.rank + 1;
  int64_t got = 0;
  std::vector<int> message(100'000, group.rank);
  std::vector<int> received(message.size());
  MPI_Win_fence(0, counters.win());
  MPI_Put(&own, 1, MPI_INT64_T, right, 4, 1, MPI_INT64_T, counters.win());
  MPI_Get(&got, 1, MPI_INT64_T, right, 6, 1, MPI_INT64_T, counters.win());
  const int count = static_cast<int>(message.size());
  MPI_Sendrecv(message.data(), count, MPI_INT, right, 0, received.data(), count, MPI_INT, left, 0,
               group.comm, MPI_STATUS_IGNORE);
  MPI_Win_fence(0, counters.win());
  expect<int64_t>("put and get among messages", group, {counters.at(group, 4), got}, {left + 1, 0});
  expect<int>("a message within an epoch", group, received, std::vector<int>(100'000, left));
}

// Checks that the window's handler receives the error, and that the window remains usable.
void errors_are_returned(const Group& group) {
  const Counters counters(group);
  MPI_Win win = counters.win();
  MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
  int64_t value = 7;
  MPI_Win_fence(0, win);
  int kind = MPI_SUCCESS;
  MPI_Error_class(MPI_Put(&value, 1, MPI_INT64_T, group.size, 0, 1, MPI_INT64_T, win), &kind);
  expect<int>("a put to no rank", group, {kind}, {MPI_ERR_RANK});
  MPI_Error_class(MPI_Put(&value, 1, MPI_DATATYPE_NULL, 0, 0, 1, MPI_INT64_T, win), &kind);
  expect<int>("a put without a type", group, {kind}, {MPI_ERR_TYPE});
  if (group.rank == 0) MPI_Put(&value, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, win);
  MPI_Win_fence(0, win);
  if (group.rank == 0) expect<int64_t>("a put after errors", group, {counters.at(group, 0)}, {7});
}

void be_killed(const Group& group) {
  const Counters counters(group);
  const int last = group.size - 1;
  if (group.rank == last) MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, counters.win());
  MPI_Barrier(group.comm);
  if (group.rank == last) {
    unlink_shared_memory();
    std::raise(SIGKILL);
  }
  MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, counters.win());
}

}  // namespace
}  // namespace tutti::test

int main(int argc, char** argv) {
  using namespace tutti::test;  // NOLINT(google-build-using-namespace)
  MPI_Init(&argc, &argv);
  const Group world("world", MPI_COMM_WORLD);
  if (argc > 1 && std::strcmp(argv[1], "killed") == 0) {
    be_killed(world);
    return finish();
  }
  const int64_t rounds = argc > 1 ? std::atol(argv[1]) : 50;
  const auto seed = static_cast<uint64_t>(argc > 2 ? std::atol(argv[2]) : 1);
  const std::string scope = argc > 3 ? argv[3] : "";
  run_random(rounds, seed,
             scope == "served"    ? Scope::served
             : scope == "careful" ? Scope::careful
                                  : Scope::all);
  if (scope == "careful") return finish();
  draw_tickets(world);
  count_under_locks(world);
  send_within_epochs(world);
  errors_are_returned(world);
  return finish();
}
