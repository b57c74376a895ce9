/* An ordinary MPI program, which computes the mean of a number over all ranks:
 *
 *   mpicc mean.c
 *   tutti mpi -- mpirun -n 4 ./a.out
 */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char** argv) {
  int rank = 0;
  int size = 0;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  double value = rank;
  double sum = 0;
  MPI_Allreduce(&value, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
  printf("rank %d of %d: the mean is %g\n", rank, size, sum / size);
  MPI_Finalize();
  return 0;
}
