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

static void check_registered(tutti_comm_t* world, int rank, int size) {
  enum { kCount = 300000 };
  float* values = malloc(kCount * sizeof(float));
  check(values != NULL, "malloc");
  for (int i = 0; i < kCount; ++i) values[i] = (float)(rank + 1);
  check(tutti_register(world, values, kCount * sizeof(float)) == TUTTI_OK, "tutti_register");
  check(tutti_register(world, values, kCount * sizeof(float)) == TUTTI_INVALID_ARGUMENT,
        "tutti_register twice");
  const tutti_buffer_t buffer = tutti_host(values, kCount, TUTTI_F32);
  check(tutti_all_reduce(world, buffer, buffer, TUTTI_SUM, NULL) == TUTTI_OK,
        "tutti_all_reduce of registered memory");
  check(tutti_deregister(world, values) == TUTTI_OK, "tutti_deregister");
  check(tutti_deregister(world, values) == TUTTI_INVALID_ARGUMENT, "tutti_deregister twice");
  const float sum = (float)(size * (size + 1) / 2);
  for (int i = 0; i < kCount; ++i) check(values[i] == sum, "the sum in registered memory");
  free(values);
}

static void check_window(tutti_comm_t* world, int rank, int size) {
  tutti_window_t* window = NULL;
  const tutti_window_options_t options = TUTTI_WINDOW_OPTIONS_INIT;
  check(tutti_window_create(world, NULL, 64, &options, &window) == TUTTI_OK, "tutti_window_create");
  const int next = (rank + 1) % size;
  check(tutti_window_bytes(window, next) == 64, "tutti_window_bytes");
  const int32_t value = 100 + rank;
  const tutti_buffer_t one = tutti_host(&value, 1, TUTTI_I32);
  check(tutti_put(window, one, next, 8) == TUTTI_OK, "tutti_put");
  check(tutti_accumulate(window, one, 0, 16, TUTTI_SUM) == TUTTI_OK, "tutti_accumulate");
  check(tutti_accumulate(window, one, 0, 16, TUTTI_AVG) == TUTTI_INVALID_ARGUMENT,
        "tutti_accumulate of a mean");
  check(tutti_put(window, one, next, 62) == TUTTI_INVALID_ARGUMENT, "tutti_put beyond the end");
  check(tutti_signal(window, next, 3, 1) == TUTTI_OK, "tutti_signal");
  check(tutti_wait_signal(window, 3, 1) == TUTTI_OK, "tutti_wait_signal");
  const int32_t* mine = tutti_window_memory(window);
  check(mine[2] == 100 + (rank + size - 1) % size, "what was put");
  check(tutti_fence(window) == TUTTI_OK, "tutti_fence");
  int32_t sum = 0;
  check(tutti_get(window, tutti_host(&sum, 1, TUTTI_I32), 0, 16) == TUTTI_OK, "tutti_get");
  check(sum == 100 * size + size * (size - 1) / 2, "what was accumulated");
  uint64_t found = 1;
  if (rank == 0) {
    check(
        tutti_compare_and_swap(window, TUTTI_I32, 0, 7, next, 24, &found) == TUTTI_OK && found == 0,
        "tutti_compare_and_swap");
  }
  check(tutti_flush(window, -1) == TUTTI_OK, "tutti_flush");
  check(tutti_window_free(window) == TUTTI_OK, "tutti_window_free");
  check(tutti_put(NULL, one, 0, 0) == TUTTI_INVALID_ARGUMENT, "tutti_put without a window");
  tutti_window_destroy(NULL);
}

static void check_wire(tutti_comm_t* world, int size) {
  float values[40];
  for (int i = 0; i < 40; ++i) values[i] = 1;
  const tutti_buffer_t buffer = tutti_host(values, 40, TUTTI_F32);
  tutti_call_options_t options = TUTTI_CALL_OPTIONS_INIT;
  options.wire = TUTTI_WIRE_MX8;
  check(tutti_all_reduce(world, buffer, buffer, TUTTI_SUM, &options) == TUTTI_OK, "wire");
  check(values[39] == (float)size, "the sum of what travelled");
  options.wire = 99;
  check(tutti_all_reduce(world, buffer, buffer, TUTTI_SUM, &options) == TUTTI_INVALID_ARGUMENT,
        "a wire format that there is not");
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

static void check_collectives(tutti_comm_t* world, int rank, int size) {
  int32_t mine = rank + 1;
  int32_t sum = 0;
  const tutti_buffer_t in = tutti_host(&mine, 1, TUTTI_I32);
  const tutti_buffer_t out = tutti_host(&sum, 1, TUTTI_I32);
  check(
      tutti_scan(world, in, out, TUTTI_SUM, NULL) == TUTTI_OK && sum == (rank + 1) * (rank + 2) / 2,
      "tutti_scan");
  int32_t all[64];
  check(tutti_gather(world, in, tutti_host(all, (uint64_t)size, TUTTI_I32), 0, NULL) == TUTTI_OK,
        "tutti_gather");
  for (int i = 0; i < size && rank == 0; ++i) check(all[i] == i + 1, "the gathered values");
  for (int i = 0; i < size; ++i) all[i] = 100 * rank + i;
  const tutti_buffer_t blocks = tutti_host(all, (uint64_t)size, TUTTI_I32);
  check(tutti_all_to_all(world, blocks, blocks, NULL) == TUTTI_OK, "tutti_all_to_all in place");
  for (int i = 0; i < size; ++i) check(all[i] == 100 * i + rank, "the exchanged values");
}

/* Of equal values the lower rank's pair wins; the others' are larger. */
static void check_pairs_async(tutti_comm_t* world, int rank, int size) {
  struct {
    float value;
    int32_t index;
  } mine[2], best[2];
  for (int i = 0; i < 2; ++i) {
    mine[i].value = i == 0 ? 1.5F : (float)(size - rank);
    mine[i].index = rank;
  }
  tutti_call_options_t options = TUTTI_CALL_OPTIONS_INIT;
  options.deterministic = 1;
  tutti_work_t* work = NULL;
  check(tutti_scan_async(world, tutti_host(mine, 2, TUTTI_F32_I32),
                         tutti_host(best, 2, TUTTI_F32_I32), TUTTI_MINLOC, &options,
                         &work) == TUTTI_OK,
        "tutti_scan_async");
  check(tutti_wait(work) == TUTTI_OK, "tutti_wait");
  check(best[0].value == 1.5F && best[0].index == 0, "the first of equal values");
  check(best[1].value == (float)(size - rank) && best[1].index == rank, "the smallest so far");
  check(tutti_work_abort(work, "it is complete") == TUTTI_OK, "tutti_work_abort does nothing now");
  tutti_work_free(work);
}

static void check_premul_sum(tutti_comm_t* world, int rank, int size) {
  double one = 1;
  double sum = 0;
  tutti_request_t request = TUTTI_REQUEST_INIT;
  request.collective = TUTTI_ALL_REDUCE;
  request.input = tutti_host(&one, 1, TUTTI_F64);
  request.output = tutti_host(&sum, 1, TUTTI_F64);
  request.op = TUTTI_PREMUL_SUM;
  request.factor = rank + 0.5;
  check(tutti_run(world, &request, NULL) == TUTTI_OK, "tutti_run");
  check(sum == size * size / 2.0, "the sum of the factors");
}

static void append(void* dst, const void* a, const void* b, uint64_t count, tutti_dtype_t dtype,
                   void* context) {
  (void)dtype;
  for (uint64_t i = 0; i < count; ++i) { /* a number's digits behind the other's */
    const int64_t base = *(const int64_t*)context;
    const int64_t right = ((const int64_t*)b)[i];
    int64_t left = ((const int64_t*)a)[i];
    for (int64_t rest = right; rest > 0; rest /= base) left *= base;
    ((int64_t*)dst)[i] = left + right;
  }
}

static void check_requests(tutti_comm_t* world, int rank, int size) {
  int64_t base = 10;
  int64_t digit = rank + 1;
  int64_t digits = 0;
  int64_t expected = 0;
  for (int i = 1; i <= size; ++i) expected = expected * 10 + i;
  tutti_request_t request = TUTTI_REQUEST_INIT;
  request.collective = TUTTI_ALL_REDUCE;
  request.input = tutti_host(&digit, 1, TUTTI_I64);
  request.output = tutti_host(&digits, 1, TUTTI_I64);
  request.op = TUTTI_USER;
  request.function = append;
  request.context = &base;
  request.not_commutative = 1;
  tutti_prepared_t* prepared = NULL;
  check(tutti_prepare(world, &request, NULL, &prepared) == TUTTI_OK, "tutti_prepare");
  for (int turn = 0; turn < 3; ++turn) {
    digits = 0;
    tutti_work_t* work = NULL;
    check(tutti_prepared_start(prepared, &work) == TUTTI_OK, "tutti_prepared_start");
    check(tutti_wait(work) == TUTTI_OK && digits == expected, "the digits in order");
    tutti_work_free(work);
  }
  tutti_prepared_free(prepared);

  uint64_t counts[64]; /* rank r gives r elements */
  float given[64];
  float gathered[64 * 64];
  uint64_t total = 0;
  for (int i = 0; i < size; ++i) total += counts[i] = (uint64_t)i;
  for (int i = 0; i < rank; ++i) given[i] = (float)rank;
  tutti_request_t uneven = TUTTI_REQUEST_INIT;
  uneven.collective = TUTTI_ALL_GATHER;
  uneven.uneven = 1;
  uneven.input = tutti_host(given, (uint64_t)rank, TUTTI_F32);
  uneven.output = tutti_host(gathered, total, TUTTI_F32);
  uneven.output_counts = counts;
  check(tutti_run(world, &uneven, NULL) == TUTTI_OK, "all_gatherv");
  for (int r = 0, i = 0; r < size; ++r) {
    for (int k = 0; k < r; ++k) check(gathered[i++] == (float)r, "the uneven blocks");
  }

  int32_t to_next = rank;
  int32_t from_previous = -1;
  const int next = (rank + 1) % size;
  const int previous = (rank + size - 1) % size;
  if (size > 1) {
    check(tutti_group_begin() == TUTTI_OK, "tutti_group_begin");
    check(tutti_recv(world, tutti_host(&from_previous, 1, TUTTI_I32), previous, NULL) == TUTTI_OK &&
              tutti_send(world, tutti_host(&to_next, 1, TUTTI_I32), next, NULL) == TUTTI_OK,
          "a group's calls do not block");
    check(tutti_group_end() == TUTTI_OK && from_previous == previous, "tutti_group_end");
  }
  check(tutti_group_end() == TUTTI_INVALID_ARGUMENT, "an end without a beginning");
}

static void check_messages(tutti_comm_t* world) {
  const int rank = tutti_rank(world);
  const int next = (rank + 1) % tutti_size(world);
  int32_t values[3] = {rank, rank + 1, rank + 2};
  int32_t got[5] = {0};
  int found = 1;
  tutti_call_options_t options = TUTTI_CALL_OPTIONS_INIT;
  tutti_message_t message = TUTTI_MESSAGE_INIT;
  tutti_work_t* works[2];
  check(tutti_probe_now(world, TUTTI_ANY_SOURCE, 7, &found, &message) == TUTTI_OK && found == 0,
        "no message is there yet");
  check(tutti_barrier(world, NULL) == TUTTI_OK, "tutti_barrier");
  for (int tag = 6; tag < 8; ++tag) {
    options.tag = tag;
    check(tutti_send_async(world, tutti_host(values, (uint64_t)tag - 4, TUTTI_I32), next, &options,
                           &works[tag - 6]) == TUTTI_OK,
          "tutti_send_async");
  }
  check(tutti_probe(world, TUTTI_ANY_SOURCE, 7, &message) == TUTTI_OK && message.count == 3 &&
            message.tag == 7 && message.dtype == TUTTI_I32,
        "tutti_probe");
  options.tag = 7;
  options.may_be_shorter = 1;
  check(tutti_recv_message(world, tutti_host(got, 5, TUTTI_I32), message.source, &options,
                           &message) == TUTTI_OK &&
            message.count == 3 && got[2] == message.source + 2 && got[3] == 0,
        "tutti_recv_message");
  tutti_work_t* receive = NULL;
  options.tag = TUTTI_ANY_TAG;
  check(tutti_recv_async(world, tutti_host(got, 5, TUTTI_I32), TUTTI_ANY_SOURCE, &options,
                         &receive) == TUTTI_OK &&
            tutti_wait(receive) == TUTTI_OK && tutti_work_message(receive, &message) == TUTTI_OK &&
            message.tag == 6 && message.count == 2,
        "tutti_work_message");
  tutti_work_free(receive);
  for (int i = 0; i < 2; ++i) {
    check(tutti_wait(works[i]) == TUTTI_OK, "tutti_wait");
    tutti_work_free(works[i]);
  }
  check(tutti_probe(world, next, 7, NULL) == TUTTI_INVALID_ARGUMENT, "nowhere to tell the message");
}

static void count_call(tutti_status_t status, const char* text, void* context) {
  check(status == TUTTI_OK && *text == '\0', "a call that ends well");
  ++*(int*)context;
}

static void count_turn(void* context) { ++*(int*)context; }

static void check_completion(tutti_comm_t* world) {
  const int rank = tutti_rank(world);
  const int size = tutti_size(world);
  float sum = 1;
  float product = 0;
  int ends = 0;
  int turns = 0;
  int32_t backwards[64];
  for (int r = 0; r < size; ++r) backwards[r] = size - 1 - r;
  tutti_comm_t* group = NULL;
  check(tutti_create(world, backwards, (size_t)size, 3, &group) == TUTTI_OK &&
            tutti_rank(group) == size - 1 - rank,
        "tutti_create");
  check(tutti_create(world, NULL, 1, 0, &group) == TUTTI_INVALID_ARGUMENT && group == NULL,
        "no list of ranks");
  check(tutti_create(world, backwards, (size_t)size, 3, &group) == TUTTI_OK, "tutti_create again");
  check(tutti_open_queues(world, 1) == TUTTI_OK, "tutti_open_queues");
  check(tutti_open_queues(world, TUTTI_MOST_QUEUES + 1) == TUTTI_INVALID_ARGUMENT,
        "too many queues");
  tutti_call_options_t queued = TUTTI_CALL_OPTIONS_INIT;
  queued.queue = 1;
  check(tutti_barrier(world, &queued) == TUTTI_OK, "a call in a queue");
  queued.queue = 2;
  check(tutti_barrier(world, &queued) == TUTTI_INVALID_ARGUMENT, "a queue that is not open");
  check(tutti_while_waiting(world, count_turn, &turns) == TUTTI_OK, "tutti_while_waiting");
  tutti_work_t* first = NULL;
  tutti_work_t* second = NULL;
  check(tutti_all_reduce_async(world, tutti_host(&sum, 1, TUTTI_F32),
                               tutti_host(&sum, 1, TUTTI_F32), TUTTI_SUM, NULL, &first) == TUTTI_OK,
        "tutti_all_reduce_async");
  tutti_call_options_t options = TUTTI_CALL_OPTIONS_INIT;
  options.after = &first;
  options.after_count = 1;
  check(tutti_all_reduce_async(group, tutti_host(&sum, 1, TUTTI_F32),
                               tutti_host(&product, 1, TUTTI_F32), TUTTI_PROD, &options,
                               &second) == TUTTI_OK,
        "a call that follows another");
  check(tutti_work_on_end(second, count_call, &ends) == TUTTI_OK, "tutti_work_on_end");
  check(tutti_wait(second) == TUTTI_OK && tutti_wait(first) == TUTTI_OK, "tutti_wait");
  float expected = 1;
  for (int r = 0; r < size; ++r) expected *= (float)size;
  check(product == expected && ends == 1, "what follows sees the sum, and its end is told");
  check(tutti_while_waiting(world, NULL, NULL) == TUTTI_OK, "tutti_while_waiting ends");
  tutti_work_free(first);
  tutti_work_free(second);
  tutti_destroy(group);
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

/* Nobody has died: all are left. */
static void check_survivors(tutti_comm_t* world, int rank, int size) {
  uint64_t flags = rank == 0 ? 6 : 12;
  int32_t living[64];
  size_t count = 0;
  check(tutti_agree(world, &flags, living, &count) == TUTTI_OK, "tutti_agree");
  check(flags == (size == 1 ? 6 : 4) && count == (size_t)size && living[count - 1] == size - 1,
        "what all of them have agreed on");
  flags = 1;
  check(tutti_agree(world, &flags, NULL, NULL) == TUTTI_OK && flags == 1, "flags alone");
  check(tutti_agree(world, NULL, NULL, NULL) == TUTTI_INVALID_ARGUMENT, "no flags");
  tutti_comm_t* left = NULL;
  check(tutti_shrink(world, &left) == TUTTI_OK, "tutti_shrink");
  check(tutti_size(left) == size && tutti_rank(left) == rank, "a communicator of all");
  check(tutti_barrier(left, NULL) == TUTTI_OK, "a barrier of those that are left");
  tutti_destroy(left);
}

int main(void) {
  tutti_comm_t* world = NULL;
  check(tutti_init(&world, NULL) == TUTTI_OK, "tutti_init");
  const int rank = tutti_rank(world);
  const int size = tutti_size(world);
  check_all_reduce(world, rank, size);
  check_registered(world, rank, size);
  check_async(world, rank, size);
  check_window(world, rank, size);
  check_wire(world, size);
  check_collectives(world, rank, size);
  check_pairs_async(world, rank, size);
  check_premul_sum(world, rank, size);
  check_requests(world, rank, size);
  check_messages(world);
  check_completion(world);
  check_errors(world);
  check_split(world, rank);
  check_survivors(world, rank, size);
  check(tutti_barrier(world, NULL) == TUTTI_OK, "tutti_barrier");
  tutti_destroy(world);
  printf("rank %d of %d: ok (version %s)\n", rank, size, tutti_version());
  return 0;
}
