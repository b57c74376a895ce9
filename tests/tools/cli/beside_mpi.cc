// Uses Tutti and MPI in one process, which share the launcher's services. `beside_mpi tutti|mpi`:
// the argument is initialized first.
#include <mpi.h>

#include <cstdio>
#include <exception>
#include <span>
#include <string_view>
#include <vector>

#include "collectives/communicator.h"

int main(int argc, char** argv) {
  const bool mpi_first = argc > 1 && std::string_view(argv[1]) == "mpi";
  if (mpi_first) MPI_Init(&argc, &argv);
  try {
    tutti::Communicator world = tutti::Communicator::init();
    if (!mpi_first) MPI_Init(&argc, &argv);
    std::vector<int> ours(3, 1);
    world.all_reduce(std::span(ours));
    const int one = 1;
    int theirs = 0;
    MPI_Allreduce(&one, &theirs, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (world.rank() == 0) std::printf("%d %d\n", ours[2], theirs);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  MPI_Finalize();
  return 0;
}
