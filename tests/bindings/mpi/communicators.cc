// Tests creation and destruction of communicators, and calls that fail.
//
//   communicators          creates and frees many; checks that calls return errors
//   communicators killed   the last rank is killed while the others wait for it
#include <mpi.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <string>

#include "tests/bindings/mpi/checks.h"

namespace tutti::test {
namespace {

int64_t open_descriptors() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                       std::filesystem::directory_iterator());
}

// Makes a duplicate and a half of the world; the half is freed first in every second round.
void make_and_free(const Group& world, int round) {
  MPI_Comm copy = MPI_COMM_NULL;
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm_dup(world.comm, &copy);
  MPI_Comm_split(copy, world.rank % 2, 0, &half);
  const Group of_half("a half", half);
  int sum = 0;
  MPI_Allreduce(&round, &sum, 1, MPI_INT, MPI_SUM, half);
  expect<int>("Allreduce", of_half, {sum}, {round * of_half.size});
  MPI_Barrier(copy);
  MPI_Comm_free(round % 2 == 0 ? &half : &copy);
  MPI_Comm_free(round % 2 == 0 ? &copy : &half);
}

void come_and_go(const Group& world) {
  for (int round = 0; round < 10; ++round) make_and_free(world, round);
  const int64_t before = open_descriptors();
  // MPI libraries that spin without yielding take long with more ranks than cores.
  const int rounds = world.size <= 2 ? 1000 : 100;
  for (int round = 0; round < rounds; ++round) make_and_free(world, round);
  expect<int64_t>("descriptors after many communicators", world, {open_descriptors()}, {before});
}

// Makes an all-reduce with different counts on two ranks. The call must return an error, because
// the communicator's handler is MPI_ERRORS_RETURN, and the world must still work.
void errors_are_returned(const Group& world) {
  MPI_Comm copy = MPI_COMM_NULL;
  MPI_Comm_dup(world.comm, &copy);
  MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN);
  std::vector<int> in(200, 1);
  std::vector<int> out(200);
  const int status =
      MPI_Allreduce(in.data(), out.data(), world.rank == 0 ? 100 : 200, MPI_INT, MPI_SUM, copy);
  int kind = MPI_SUCCESS;
  MPI_Error_class(status, &kind);
  expect<int>("an Allreduce that does not fit", world, {kind}, {MPI_ERR_TRUNCATE});
  MPI_Comm_free(&copy);
  int sum = 0;
  MPI_Allreduce(in.data(), &sum, 1, MPI_INT, MPI_SUM, world.comm);
  expect<int>("Allreduce after an error elsewhere", world, {sum}, {world.size});
}

void be_killed(const Group& world) {
  MPI_Barrier(world.comm);
  if (world.rank == world.size - 1) {
    unlink_shared_memory();
    std::raise(SIGKILL);
  }
  MPI_Barrier(world.comm);
}

}  // namespace
}  // namespace tutti::test

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  const tutti::test::Group world("world", MPI_COMM_WORLD);
  if (argc > 1 && std::strcmp(argv[1], "killed") == 0) {
    tutti::test::be_killed(world);
  } else {
    tutti::test::come_and_go(world);
    // Repeats the call, because a rank is sometimes still creating the communicator when the call
    // of the others has failed.
    constexpr int kRounds = 20;
    for (int i = 0; i < kRounds && world.size > 1; ++i) tutti::test::errors_are_returned(world);
  }
  return tutti::test::finish();
}
