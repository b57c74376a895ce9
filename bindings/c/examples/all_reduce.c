/* Computes the mean of a number over all ranks:
 *
 *   cc all_reduce.c $(pkg-config --cflags --libs tutti)
 *   tutti run -n 4 -- ./a.out
 */
#include <stdio.h>
#include <tutti.h>

int main(void) {
  tutti_comm_t* world = NULL;
  if (tutti_init(&world, NULL) != TUTTI_OK) {
    fprintf(stderr, "%s\n", tutti_error_text());
    return 1;
  }
  float value = (float)tutti_rank(world);
  const tutti_buffer_t buffer = tutti_host(&value, 1, TUTTI_F32);
  if (tutti_all_reduce(world, buffer, buffer, TUTTI_AVG, NULL) != TUTTI_OK) { /* in place */
    fprintf(stderr, "%s\n", tutti_error_text());
    return 1;
  }
  printf("rank %d of %d: the mean is %g\n", tutti_rank(world), tutti_size(world), value);
  tutti_destroy(world);
  return 0;
}
