// What an MPI program's collective calls take, with and without Tutti before its MPI library:
// bench/micro/mpi_overhead runs both in turn. Prints "Allreduce 1024 12.34": bytes, and the median
// of microseconds of one call.
//
//   mpi_calls_openmpi [BYTES...]      (started by that library's mpirun)
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace {

constexpr int kBatches = 31;

// Of the slowest rank in each batch, the median of batches.
double median_microseconds(int calls, const std::function<void()>& call) {
  std::array<double, kBatches> times{};
  for (int i = 0; i < calls; ++i) call();
  for (double& time : times) {
    PMPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    for (int i = 0; i < calls; ++i) call();
    const double own = (MPI_Wtime() - start) / calls * 1e6;
    PMPI_Allreduce(&own, &time, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  }
  std::ranges::sort(times);
  return times[kBatches / 2];
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (int word = 1; word < argc; ++word) {
    const long bytes = std::atol(argv[word]);
    const int count = static_cast<int>(bytes / static_cast<long>(sizeof(float)));
    const auto all = static_cast<size_t>(count) * static_cast<size_t>(size);
    std::vector<float> in(all, 1);
    std::vector<float> out(all);
    const int calls = static_cast<int>(std::clamp(2000000 / (bytes + 500), 5L, 2000L));
    const auto show = [&](const char* name, const std::function<void()>& call) {
      const double median = median_microseconds(calls, call);
      if (rank == 0) std::printf("%s %ld %.3f\n", name, bytes, median);
    };
    show("Allreduce",
         [&] { MPI_Allreduce(in.data(), out.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); });
    show("Bcast", [&] { MPI_Bcast(in.data(), count, MPI_FLOAT, 0, MPI_COMM_WORLD); });
    show("Reduce",
         [&] { MPI_Reduce(in.data(), out.data(), count, MPI_FLOAT, MPI_SUM, 0, MPI_COMM_WORLD); });
    show("Allgather", [&] {
      MPI_Allgather(in.data(), count, MPI_FLOAT, out.data(), count, MPI_FLOAT, MPI_COMM_WORLD);
    });
    show("Alltoall", [&] {
      MPI_Alltoall(in.data(), count, MPI_FLOAT, out.data(), count, MPI_FLOAT, MPI_COMM_WORLD);
    });
    show("Reduce_scatter_block", [&] {
      MPI_Reduce_scatter_block(in.data(), out.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    });
    show("Scan",
         [&] { MPI_Scan(in.data(), out.data(), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); });
    show("Gather", [&] {
      MPI_Gather(in.data(), count, MPI_FLOAT, out.data(), count, MPI_FLOAT, 0, MPI_COMM_WORLD);
    });
    show("Scatter", [&] {
      MPI_Scatter(in.data(), count, MPI_FLOAT, out.data(), count, MPI_FLOAT, 0, MPI_COMM_WORLD);
    });
    const std::vector<int> counts(static_cast<size_t>(size), count);
    std::vector<int> places(counts.size());
    for (size_t r = 0; r < places.size(); ++r) places[r] = static_cast<int>(r) * count;
    show("Reduce_scatter", [&] {
      MPI_Reduce_scatter(in.data(), out.data(), counts.data(), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    });
    show("Allgatherv", [&] {
      MPI_Allgatherv(in.data(), count, MPI_FLOAT, out.data(), counts.data(), places.data(),
                     MPI_FLOAT, MPI_COMM_WORLD);
    });
    show("Gatherv", [&] {
      MPI_Gatherv(in.data(), count, MPI_FLOAT, out.data(), counts.data(), places.data(), MPI_FLOAT,
                  0, MPI_COMM_WORLD);
    });
    show("Scatterv", [&] {
      MPI_Scatterv(in.data(), counts.data(), places.data(), MPI_FLOAT, out.data(), count, MPI_FLOAT,
                   0, MPI_COMM_WORLD);
    });
    show("Alltoallv", [&] {
      MPI_Alltoallv(in.data(), counts.data(), places.data(), MPI_FLOAT, out.data(), counts.data(),
                    places.data(), MPI_FLOAT, MPI_COMM_WORLD);
    });
    show("Barrier", [&] { MPI_Barrier(MPI_COMM_WORLD); });
  }
  MPI_Finalize();
  return 0;
}
