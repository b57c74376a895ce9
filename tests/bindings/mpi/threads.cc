// Tests several threads per rank (MPI_THREAD_MULTIPLE), each with its own communicators, operators
// and blocking and non-blocking calls.
#include <mpi.h>

#include <atomic>
#include <thread>

#include "tests/bindings/mpi/checks.h"

namespace tutti::test {
namespace {

constexpr int kThreads = 3;
constexpr int kRounds = 40;

std::atomic<int> wrong_in_threads{0};

void add(void* in, void* in_out, int* count, MPI_Datatype*) {
  for (int i = 0; i < *count; ++i) static_cast<int*>(in_out)[i] += static_cast<int*>(in)[i];
}

void need(bool right) {
  if (!right) wrong_in_threads.fetch_add(1);
}

void make_calls(MPI_Comm comm, int thread) {
  int rank = 0;
  int size = 1;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm_size(comm, &size);
  MPI_Op op = MPI_OP_NULL;
  MPI_Op_create(add, 1, &op);
  for (int round = 0; round < kRounds; ++round) {
    const int count = 1 + round * 50 * (thread + 1);
    std::vector<int> in(static_cast<size_t>(count), rank + thread);
    std::vector<int> sums(in.size());
    const std::vector<int> wanted(in.size(), size * (size - 1) / 2 + size * thread);
    MPI_Allreduce(in.data(), sums.data(), count, MPI_INT, round % 2 == 0 ? op : MPI_SUM, comm);
    need(sums == wanted);
    sums.assign(in.size(), 0);
    std::vector<int> word(in.size(), rank == round % size ? round : -1);
    MPI_Request requests[3] = {};
    MPI_Iallreduce(in.data(), sums.data(), count, MPI_INT, MPI_SUM, comm, &requests[0]);
    MPI_Ibcast(word.data(), count, MPI_INT, round % size, comm, &requests[1]);
    MPI_Ibarrier(comm, &requests[2]);
    if (round % 3 == 0) {
      for (MPI_Request& request : requests) MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else {
      MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
    }
    need(sums == wanted);
    need(word == std::vector<int>(in.size(), round));
    if (round % 10 != 0) continue;
    MPI_Comm copy = MPI_COMM_NULL;
    MPI_Comm_dup(comm, &copy);
    MPI_Barrier(copy);
    MPI_Comm_free(&copy);
  }
  MPI_Op_free(&op);
}

}  // namespace
}  // namespace tutti::test

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  const tutti::test::Group world("world", MPI_COMM_WORLD);
  tutti::test::expect<int>("the level of threads", world, {provided}, {MPI_THREAD_MULTIPLE});
  MPI_Comm comms[tutti::test::kThreads];
  for (MPI_Comm& comm : comms) MPI_Comm_dup(MPI_COMM_WORLD, &comm);
  {
    std::vector<std::jthread> threads;
    threads.reserve(tutti::test::kThreads);
    for (int i = 0; i < tutti::test::kThreads; ++i) {
      threads.emplace_back([comm = comms[i], i] { tutti::test::make_calls(comm, i); });
    }
  }
  for (MPI_Comm& comm : comms) MPI_Comm_free(&comm);
  tutti::test::expect<int>("calls of threads", world, {tutti::test::wrong_in_threads.load()}, {0});
  return tutti::test::finish();
}
