/* A program outside the tree: all-reduce, an asynchronous call, an error. Prints "rank R of N: ok".
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti.h>

static void check(int good, const char* what) {
  if (good) return;
  fprintf(stderr, "failed: %s; last error: %s\n", what, tutti_error_text());
  exit(1);
}

static void check_all_reduce(tutti_comm_t* world, int rank, int size) {
  enum { kCount = 1003 };
  float input[kCount];
  float output[kCount];
  for (int i = 0; i < kCount; ++i) input[i] = (float)(i * (rank + 1));
  check(tutti_all_reduce(world, tutti_host(input, kCount, TUTTI_F32),
                         tutti_host(output, kCount, TUTTI_F32), TUTTI_SUM, NULL) == TUTTI_OK,
        "tutti_all_reduce");
  const int factor = size * (size + 1) / 2;
  for (int i = 0; i < kCount; ++i) check(output[i] == (float)(i * factor), "the sum");
}

static void check_async(tutti_comm_t* world, int rank, int size) {
  const int64_t mine = rank;
  void* all = NULL;
  check(tutti_alloc(world, (size_t)size * sizeof(int64_t), &all) == TUTTI_OK, "tutti_alloc");
  tutti_work_t* work = NULL;
  tutti_call_options_t options = TUTTI_CALL_OPTIONS_INIT;
  options.timeout = 30;
  check(tutti_all_gather_async(world, tutti_host(&mine, 1, TUTTI_I64),
                               tutti_host(all, (uint64_t)size, TUTTI_I64), &options,
                               &work) == TUTTI_OK,
        "tutti_all_gather_async");
  check(tutti_wait(work) == TUTTI_OK, "tutti_wait");
  int done = 0;
  check(tutti_test(work, &done) == TUTTI_OK && done == 1, "tutti_test after tutti_wait");
  tutti_work_free(work);
  for (int i = 0; i < size; ++i) check(((int64_t*)all)[i] == i, "the gathered ranks");
  check(tutti_free(world, all) == TUTTI_OK, "tutti_free");
}

static void check_errors(tutti_comm_t* world) {
  float value = 1;
  tutti_buffer_t buffer = tutti_host(&value, 1, TUTTI_F32);
  check(tutti_all_reduce(NULL, buffer, buffer, TUTTI_SUM, NULL) == TUTTI_INVALID_ARGUMENT,
        "no communicator must be refused");
  check(tutti_all_reduce(world, buffer, buffer, 99, NULL) == TUTTI_INVALID_ARGUMENT,
        "an unknown op must be refused");
  check(strstr(tutti_error_text(), "99") != NULL, "the error text must name the op");
  check(tutti_free(world, &value) == TUTTI_INVALID_ARGUMENT, "foreign memory must be refused");
  struct {
    tutti_call_options_t known;
    int64_t later;
  } newer = {TUTTI_CALL_OPTIONS_INIT, 0};
  newer.known.size = sizeof(newer);
  check(tutti_barrier(world, &newer.known) == TUTTI_OK, "a longer struct, nothing set");
  newer.later = 1;
  check(tutti_barrier(world, &newer.known) == TUTTI_UNSUPPORTED, "a longer struct, unknown set");
  check(strcmp(tutti_error_name(TUTTI_TIMEOUT), "timeout") == 0, "tutti_error_name");
}

static void check_split(tutti_comm_t* world, int rank) {
  tutti_comm_t* alone = NULL;
  check(tutti_split(world, rank, 0, &alone) == TUTTI_OK, "tutti_split");
  check(tutti_size(alone) == 1 && tutti_rank(alone) == 0, "a communicator of one");
  tutti_destroy(alone);
  tutti_comm_t* none = world;
  check(tutti_split(world, -1, 0, &none) == TUTTI_OK && none == NULL, "a negative color");
}

int main(void) {
  tutti_comm_t* world = NULL;
  check(tutti_init(&world, NULL) == TUTTI_OK, "tutti_init");
  const int rank = tutti_rank(world);
  const int size = tutti_size(world);
  check_all_reduce(world, rank, size);
  check_async(world, rank, size);
  check_errors(world);
  check_split(world, rank);
  check(tutti_barrier(world, NULL) == TUTTI_OK, "tutti_barrier");
  tutti_destroy(world);
  printf("rank %d of %d: ok (version %s)\n", rank, size, tutti_version());
  return 0;
}
