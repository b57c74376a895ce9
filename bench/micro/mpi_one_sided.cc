// Times one-sided calls of an MPI library, for bench/micro/one_sided_beside.
#include <mpi.h>

#include <cstring>
#include <vector>

#include "bench/micro/one_sided_times.h"

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  using tutti::bench::kLargestPart;
  char* memory = nullptr;
  MPI_Win window = MPI_WIN_NULL;
  MPI_Win_allocate(kLargestPart, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
  std::memset(memory, 1, kLargestPart);
  std::vector<char> own(kLargestPart, 2);
  MPI_Barrier(MPI_COMM_WORLD);
  if (rank == 0) {
    MPI_Win_lock_all(0, window);
    tutti::bench::time_calls("put", [&](size_t bytes) {
      const int count = static_cast<int>(bytes);
      MPI_Put(own.data(), count, MPI_BYTE, 1, 0, count, MPI_BYTE, window);
      MPI_Win_flush(1, window);
    });
    tutti::bench::time_calls("get", [&](size_t bytes) {
      const int count = static_cast<int>(bytes);
      MPI_Get(own.data(), count, MPI_BYTE, 1, 0, count, MPI_BYTE, window);
      MPI_Win_flush(1, window);
    });
    tutti::bench::time_calls("accumulate", [&](size_t bytes) {
      const int count = static_cast<int>(bytes / sizeof(float));
      MPI_Accumulate(own.data(), count, MPI_FLOAT, 1, 0, count, MPI_FLOAT, MPI_SUM, window);
      MPI_Win_flush(1, window);
    });
    MPI_Win_unlock_all(window);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Win_free(&window);
  MPI_Finalize();
  return 0;
}
