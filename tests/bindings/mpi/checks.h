// Functions of all MPI test programs: values that identify ranks, and checks that report failures.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace tutti::test {

inline int wrong = 0;

struct Group {
  const char* name;
  MPI_Comm comm;
  int rank = 0;
  int size = 1;

  Group(const char* its_name, MPI_Comm its_comm) : name(its_name), comm(its_comm) {
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
  }
};

template <typename T>
void expect(const std::string& what, const Group& group, const std::vector<T>& got,
            const std::vector<T>& wanted) {
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (got.size() == wanted.size() && got[i] == wanted[i]) continue;
    ++wrong;
    std::fprintf(stderr, "%s on %s, rank %d of %d: element %zu of %zu differs\n", what.c_str(),
                 group.name, group.rank, group.size, i, wanted.size());
    return;
  }
}

// Small whole numbers, so that every type sums them exactly in any order; never 0, for products.
template <typename T>
T value_of(int rank, int64_t i) {
  return static_cast<T>(1 + (rank * 2 + i) % 3);
}

template <typename T>
std::vector<T> values_of(int rank, int64_t count, int64_t from = 0) {
  std::vector<T> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) values[static_cast<size_t>(i)] = value_of<T>(rank, from + i);
  return values;
}

// Unlinks the shared memory of MPICH's ranks, because MPICH does not do so when a rank is killed.
// All ranks must have mapped the memory, so that its name is no longer needed.
inline void unlink_shared_memory() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const size_t path = line.find("/dev/shm/mpich_");
    if (path != std::string::npos) std::filesystem::remove(line.substr(path));
  }
}

// Waits for the other ranks, reports the first rank with wrong results, and returns the exit
// status.
inline int finish() {
  int all_wrong = 0;
  PMPI_Allreduce(&wrong, &all_wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0 && all_wrong == 0) std::puts("all right");
  MPI_Finalize();
  return all_wrong == 0 ? 0 : 1;
}

}  // namespace tutti::test
