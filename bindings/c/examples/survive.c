/* Computes means, and continues when ranks die:
 *
 *   cc survive.c -o survive $(pkg-config --cflags --libs tutti)
 *   tutti run -n 4 --min-ranks 2 -- ./survive        # and kill -9 some of them meanwhile
 *   tutti run -n 4 --min-ranks 2 -- ./survive 3      # rank 3 kills itself
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <tutti.h>

static void give_up(void) {
  fprintf(stderr, "%s\n", tutti_error_text());
  exit(1);
}

/* Replaces `comm` by a communicator of the survivors. */
static tutti_comm_t* without_the_dead(tutti_comm_t* comm) {
  tutti_comm_t* left = NULL;
  fprintf(stderr, "%s\n", tutti_error_text());
  if (tutti_shrink(comm, &left) != TUTTI_OK) give_up();
  tutti_destroy(comm);
  return left;
}

int main(int argc, char** argv) {
  tutti_comm_t* comm = NULL;
  if (tutti_init(&comm, NULL) != TUTTI_OK) give_up();
  const int own = tutti_rank(comm);
  const int dies = argc > 1 ? atoi(argv[1]) : -1;
  float value = 0;
  for (int step = 0; step < 1000;) {
    if (own == dies && step == 500) raise(SIGKILL);
    value = (float)own;
    const tutti_buffer_t buffer = tutti_host(&value, 1, TUTTI_F32);
    const tutti_status_t status =
        tutti_all_reduce(comm, buffer, buffer, TUTTI_AVG, NULL); /* in place */
    if (status == TUTTI_OK) {
      ++step;
    } else if (status == TUTTI_RANK_DIED) {
      /* Ranks may be one step apart, so all continue from the smallest step. */
      comm = without_the_dead(comm);
      int64_t next = step;
      const tutti_buffer_t all = tutti_host(&next, 1, TUTTI_I64);
      if (tutti_all_reduce(comm, all, all, TUTTI_MIN, NULL) == TUTTI_OK) step = (int)next;
    } else {
      give_up();
    }
  }
  printf("rank %d of %d: the mean is %g\n", tutti_rank(comm), tutti_size(comm), value);
  tutti_destroy(comm);
  return 0;
}
