// Times an MPI program's collective and one-sided calls. bench/micro/mpi_overhead runs this program
// in turn with and without Tutti's library preloaded. Prints lines such as "Allreduce 1024 12.34":
// the call, the bytes, and the median time of a call in microseconds.
//
//   mpi_calls_openmpi [BYTES...]      (started by that library's mpirun)
#include <mpi.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace {

constexpr int kBatches = 31;

// Returns the median over batches of the slowest rank's time per call.
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

const MPI_Comm kAll = MPI_COMM_WORLD;
const MPI_Datatype kType = MPI_FLOAT;

void add(void* in, void* in_out, int* count, MPI_Datatype*) {
  for (int i = 0; i < *count; ++i) static_cast<float*>(in_out)[i] += static_cast<float*>(in)[i];
}

template <typename Show>
void show_all(const Show& show, float* in, float* out, int n, const int* counts,
              const int* places) {
  show("Allreduce", [=](MPI_Request* request) {
    request == nullptr ? MPI_Allreduce(in, out, n, kType, MPI_SUM, kAll)
                       : MPI_Iallreduce(in, out, n, kType, MPI_SUM, kAll, request);
  });
  show("Bcast", [=](MPI_Request* request) {
    request == nullptr ? MPI_Bcast(in, n, kType, 0, kAll)
                       : MPI_Ibcast(in, n, kType, 0, kAll, request);
  });
  show("Reduce", [=](MPI_Request* request) {
    request == nullptr ? MPI_Reduce(in, out, n, kType, MPI_SUM, 0, kAll)
                       : MPI_Ireduce(in, out, n, kType, MPI_SUM, 0, kAll, request);
  });
  show("Allgather", [=](MPI_Request* request) {
    request == nullptr ? MPI_Allgather(in, n, kType, out, n, kType, kAll)
                       : MPI_Iallgather(in, n, kType, out, n, kType, kAll, request);
  });
  show("Alltoall", [=](MPI_Request* request) {
    request == nullptr ? MPI_Alltoall(in, n, kType, out, n, kType, kAll)
                       : MPI_Ialltoall(in, n, kType, out, n, kType, kAll, request);
  });
  show("Reduce_scatter_block", [=](MPI_Request* request) {
    request == nullptr ? MPI_Reduce_scatter_block(in, out, n, kType, MPI_SUM, kAll)
                       : MPI_Ireduce_scatter_block(in, out, n, kType, MPI_SUM, kAll, request);
  });
  show("Scan", [=](MPI_Request* request) {
    request == nullptr ? MPI_Scan(in, out, n, kType, MPI_SUM, kAll)
                       : MPI_Iscan(in, out, n, kType, MPI_SUM, kAll, request);
  });
  show("Exscan", [=](MPI_Request* request) {
    request == nullptr ? MPI_Exscan(in, out, n, kType, MPI_SUM, kAll)
                       : MPI_Iexscan(in, out, n, kType, MPI_SUM, kAll, request);
  });
  show("Gather", [=](MPI_Request* request) {
    request == nullptr ? MPI_Gather(in, n, kType, out, n, kType, 0, kAll)
                       : MPI_Igather(in, n, kType, out, n, kType, 0, kAll, request);
  });
  show("Scatter", [=](MPI_Request* request) {
    request == nullptr ? MPI_Scatter(in, n, kType, out, n, kType, 0, kAll)
                       : MPI_Iscatter(in, n, kType, out, n, kType, 0, kAll, request);
  });
  show("Reduce_scatter", [=](MPI_Request* request) {
    request == nullptr ? MPI_Reduce_scatter(in, out, counts, kType, MPI_SUM, kAll)
                       : MPI_Ireduce_scatter(in, out, counts, kType, MPI_SUM, kAll, request);
  });
  show("Allgatherv", [=](MPI_Request* request) {
    request == nullptr ? MPI_Allgatherv(in, n, kType, out, counts, places, kType, kAll)
                       : MPI_Iallgatherv(in, n, kType, out, counts, places, kType, kAll, request);
  });
  show("Gatherv", [=](MPI_Request* request) {
    request == nullptr ? MPI_Gatherv(in, n, kType, out, counts, places, kType, 0, kAll)
                       : MPI_Igatherv(in, n, kType, out, counts, places, kType, 0, kAll, request);
  });
  show("Scatterv", [=](MPI_Request* request) {
    request == nullptr ? MPI_Scatterv(in, counts, places, kType, out, n, kType, 0, kAll)
                       : MPI_Iscatterv(in, counts, places, kType, out, n, kType, 0, kAll, request);
  });
  show("Alltoallv", [=](MPI_Request* request) {
    request == nullptr
        ? MPI_Alltoallv(in, counts, places, kType, out, counts, places, kType, kAll)
        : MPI_Ialltoallv(in, counts, places, kType, out, counts, places, kType, kAll, request);
  });
  show("Barrier", [=](MPI_Request* request) {
    request == nullptr ? MPI_Barrier(kAll) : MPI_Ibarrier(kAll, request);
  });
}

// Times accesses to the next rank's part of a window, with fences and with flushes, and the
// creation and destruction of a window.
template <typename Show>
void show_window(const Show& show, const std::vector<float>& in, int n, int next) {
  const auto bytes = static_cast<MPI_Aint>(in.size() * sizeof(float));
  float* memory = nullptr;
  MPI_Win window = MPI_WIN_NULL;
  MPI_Win_allocate(bytes, sizeof(float), MPI_INFO_NULL, kAll, static_cast<void*>(&memory), &window);
  std::vector<float> own = in;
  const std::array<std::pair<const char*, std::function<void()>>, 3> calls = {{
      {"Put", [&] { MPI_Put(own.data(), n, kType, next, 0, n, kType, window); }},
      {"Get", [&] { MPI_Get(own.data(), n, kType, next, 0, n, kType, window); }},
      {"Accumulate",
       [&] { MPI_Accumulate(own.data(), n, kType, next, 0, n, kType, MPI_MAX, window); }},
  }};
  MPI_Win_fence(0, window);
  for (const auto& [name, call] : calls) {
    show(std::string(name) + "_fence", [&] {
      call();
      MPI_Win_fence(0, window);
    });
  }
  MPI_Win_fence(MPI_MODE_NOSUCCEED, window);
  MPI_Win_lock_all(0, window);
  for (const auto& [name, call] : calls) {
    show(std::string(name) + "_flush", [&] {
      call();
      MPI_Win_flush(next, window);
    });
  }
  MPI_Win_unlock_all(window);
  MPI_Win_free(&window);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Op add_op = MPI_OP_NULL;
  MPI_Op_create(add, 1, &add_op);
  for (int word = 1; word < argc; ++word) {
    const long bytes = std::atol(argv[word]);
    const int count = static_cast<int>(bytes / static_cast<long>(sizeof(float)));
    const auto all = static_cast<size_t>(count) * static_cast<size_t>(size);
    std::vector<float> in(all, 1);
    std::vector<float> out(all);
    const int calls = static_cast<int>(std::clamp(2000000 / (bytes + 500), 5L, 2000L));
    const auto show = [&](const std::string& name, const std::function<void()>& call) {
      const double median = median_microseconds(calls, call);
      if (rank == 0) std::printf("%s %ld %.3f\n", name.c_str(), bytes, median);
    };
    // Times the blocking form and the nonblocking form followed by a wait.
    const auto show_both = [&](const std::string& name,
                               const std::function<void(MPI_Request*)>& call) {
      show(name, [&] { call(nullptr); });
      const std::string starting = std::string("I") + static_cast<char>(std::tolower(name[0]));
      show(starting + name.substr(1), [&] {
        MPI_Request request = MPI_REQUEST_NULL;
        call(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
      });
    };
    const std::vector<int> counts(static_cast<size_t>(size), count);
    std::vector<int> places(counts.size());
    for (size_t r = 0; r < places.size(); ++r) places[r] = static_cast<int>(r) * count;
    show_all(show_both, in.data(), out.data(), count, counts.data(), places.data());
    const auto reduce_by = [&](const char* name, int elements, MPI_Datatype type, MPI_Op op) {
      show(name, [&, elements, type, op] {
        MPI_Allreduce(in.data(), out.data(), elements, type, op, MPI_COMM_WORLD);
      });
    };
    show_window(show, in, count, (rank + 1) % size);
    reduce_by("Allreduce_function", count, MPI_FLOAT, add_op);
    reduce_by("Allreduce_logical", count, MPI_INT, MPI_LAND);
    reduce_by("Allreduce_complex", count / 2, MPI_C_FLOAT_COMPLEX, MPI_PROD);
    if (count >= 4) reduce_by("Allreduce_pair", count / 4, MPI_DOUBLE_INT, MPI_MINLOC);
    show("Messages", [&] {
      MPI_Request requests[2];
      MPI_Irecv(out.data(), count, MPI_FLOAT, (rank + size - 1) % size, 0, MPI_COMM_WORLD,
                &requests[0]);
      MPI_Isend(in.data(), count, MPI_FLOAT, (rank + 1) % size, 0, MPI_COMM_WORLD, &requests[1]);
      MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    });
  }
  MPI_Finalize();
  return 0;
}
