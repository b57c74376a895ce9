// Errors that a random client makes on one rank only: NULL pointers, invalid numbers, handles of
// the wrong kind, calls out of order. Each must return an error with a text and change nothing.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "bindings/c/tutti.h"
#include "tests/bindings/random_call.h"

namespace tutti::testing {

// Arguments for the erroneous calls, and outputs that none of them may write.
struct ErroneousArguments {
  tutti_comm_t* comm;
  Random& random;
  std::array<std::byte, 16> bytes = {};
  tutti_buffer_t buffer = tutti_host(bytes.data(), 4, TUTTI_I32);
  tutti_request_t request = TUTTI_REQUEST_INIT;
  tutti_init_options_t init = TUTTI_INIT_OPTIONS_INIT;
  tutti_call_options_t options = TUTTI_CALL_OPTIONS_INIT;
  tutti_message_t message = TUTTI_MESSAGE_INIT;
  uint64_t absurd = absurd_count(random);
  int32_t no_rank = random.once_in(2) ? tutti_size(comm) : -2;
  int32_t no_tag = random.once_in(2) ? -2 : TUTTI_LARGEST_TAG + 1;
  double no_time = random.once_in(2) ? -1 : std::numeric_limits<double>::quiet_NaN();
  tutti_work_t* work = nullptr;
  tutti_comm_t* other = nullptr;
  tutti_joining_t* joining = nullptr;
  tutti_prepared_t* prepared = nullptr;
  void* memory = nullptr;
  int done = 0;

  // Calls `use` with a work of this rank only, complete or not.
  template <typename Use>
  tutti_status_t with_work(Use use) {
    const std::array<int32_t, 1> self = {tutti_rank(comm)};
    tutti_comm_t* alone = nullptr;
    tutti_work_t* own = nullptr;
    EXPECT_EQ(tutti_create(comm, self.data(), 1, 0, &alone), TUTTI_OK) << tutti_error_text();
    EXPECT_EQ(random.once_in(2) ? tutti_recv_async(alone, buffer, 0, nullptr, &own)
                                : tutti_barrier_async(alone, nullptr, &own),
              TUTTI_OK);
    const tutti_status_t status = use(own);
    tutti_work_free(own);
    tutti_destroy(alone);
    return status;
  }
};

using Mistake = std::function<tutti_status_t(ErroneousArguments&)>;

inline const std::vector<Mistake>& mistakes_with_calls() {
  static const std::vector<Mistake> all = {
      [](ErroneousArguments& d) {
        return tutti_all_reduce(nullptr, d.buffer, d.buffer, TUTTI_SUM, nullptr);
      },
      [](ErroneousArguments& d) {
        return tutti_all_reduce_async(d.comm, d.buffer, d.buffer, TUTTI_SUM, nullptr, nullptr);
      },
      [](ErroneousArguments& d) { return tutti_barrier_async(nullptr, nullptr, &d.work); },
      [](ErroneousArguments& d) { return tutti_run(d.comm, nullptr, nullptr); },
      [](ErroneousArguments& d) { return tutti_start(d.comm, &d.request, nullptr, nullptr); },
      [](ErroneousArguments& d) { return tutti_prepare(d.comm, nullptr, nullptr, &d.prepared); },
      [](ErroneousArguments& d) { return tutti_prepare(d.comm, &d.request, nullptr, nullptr); },
      [](ErroneousArguments& d) { return tutti_prepared_start(nullptr, &d.work); },
      [](ErroneousArguments&) { return tutti_group_end(); },
      [](ErroneousArguments& d) {
        d.options.after_count = 1;  // a count without a list
        return tutti_barrier(d.comm, &d.options);
      },
      [](ErroneousArguments& d) {
        d.options.after = &d.work;  // the list contains NULL
        d.options.after_count = 1;
        return tutti_barrier_async(d.comm, &d.options, &d.work);
      },
      [](ErroneousArguments& d) {
        d.options.tag = d.no_tag;
        return tutti_send(d.comm, d.buffer, tutti_rank(d.comm), &d.options);
      },
      [](ErroneousArguments& d) {
        d.options.tag = d.no_tag;
        return tutti_recv_async(d.comm, d.buffer, tutti_rank(d.comm), &d.options, &d.work);
      },
      [](ErroneousArguments& d) {
        d.options.tag = TUTTI_ANY_TAG;
        return tutti_send(d.comm, d.buffer, tutti_rank(d.comm), &d.options);
      },
      [](ErroneousArguments& d) { return tutti_send(d.comm, d.buffer, TUTTI_ANY_SOURCE, nullptr); },
      [](ErroneousArguments& d) { return tutti_send(d.comm, d.buffer, d.no_rank, nullptr); },
      [](ErroneousArguments& d) { return tutti_recv(d.comm, d.buffer, d.no_rank, nullptr); },
      [](ErroneousArguments& d) {
        return tutti_recv_message(d.comm, d.buffer, tutti_rank(d.comm), nullptr, nullptr);
      },
      [](ErroneousArguments& d) {
        d.message.size = d.random.once_in(2) ? 9 : SIZE_MAX;
        return tutti_recv_message(d.comm, d.buffer, tutti_rank(d.comm), nullptr, &d.message);
      },
      [](ErroneousArguments& d) {
        EXPECT_EQ(tutti_group_begin(), TUTTI_OK);
        const tutti_status_t status =
            tutti_recv_message(d.comm, d.buffer, tutti_rank(d.comm), nullptr, &d.message);
        EXPECT_EQ(tutti_group_end(), TUTTI_OK);
        return status;
      },
      [](ErroneousArguments& d) { return tutti_probe(d.comm, d.no_rank, 0, &d.message); },
      [](ErroneousArguments& d) {
        return tutti_probe(d.comm, TUTTI_ANY_SOURCE, d.no_tag, &d.message);
      },
      [](ErroneousArguments& d) { return tutti_probe(d.comm, 0, 0, nullptr); },
      [](ErroneousArguments& d) { return tutti_probe_now(d.comm, 0, 0, nullptr, &d.message); },
      [](ErroneousArguments& d) {
        return tutti_probe_now(d.comm, d.no_rank, 0, &d.done, &d.message);
      },
  };
  return all;
}

inline const std::vector<Mistake>& mistakes_with_works() {
  static const std::vector<Mistake> all = {
      [](ErroneousArguments&) { return tutti_wait(nullptr); },
      [](ErroneousArguments& d) { return tutti_test(nullptr, &d.done); },
      [](ErroneousArguments& d) { return tutti_wait_for(nullptr, 1, &d.done); },
      [](ErroneousArguments&) { return tutti_work_abort(nullptr, nullptr); },
      [](ErroneousArguments& d) { return tutti_work_message(nullptr, &d.message); },
      [](ErroneousArguments&) {
        return tutti_work_on_end(
            nullptr, [](tutti_status_t, const char*, void*) {}, nullptr);
      },
      [](ErroneousArguments& d) {
        return d.with_work([](tutti_work_t* work) { return tutti_test(work, nullptr); });
      },
      [](ErroneousArguments& d) {
        return d.with_work(
            [&](tutti_work_t* work) { return tutti_wait_for(work, d.no_time, &d.done); });
      },
      [](ErroneousArguments& d) {
        return d.with_work(
            [](tutti_work_t* work) { return tutti_work_on_end(work, nullptr, nullptr); });
      },
      [](ErroneousArguments& d) {  // nothing was received
        return d.with_work(
            [&](tutti_work_t* work) { return tutti_work_message(work, &d.message); });
      },
      [](ErroneousArguments& d) {
        return d.with_work([](tutti_work_t* work) { return tutti_work_message(work, nullptr); });
      },
  };
  return all;
}

inline const std::vector<Mistake>& mistakes_with_memory() {
  static const std::vector<Mistake> all = {
      [](ErroneousArguments& d) { return tutti_alloc(d.comm, d.absurd, &d.memory); },
      [](ErroneousArguments& d) { return tutti_alloc(d.comm, 16, nullptr); },
      [](ErroneousArguments& d) { return tutti_alloc(nullptr, 16, &d.memory); },
      [](ErroneousArguments& d) { return tutti_free(d.comm, d.bytes.data()); },
      [](ErroneousArguments& d) { return tutti_free(nullptr, d.bytes.data()); },
      [](ErroneousArguments& d) { return tutti_register(d.comm, nullptr, 100); },
      [](ErroneousArguments& d) { return tutti_register(d.comm, d.bytes.data(), d.absurd); },
      [](ErroneousArguments& d) { return tutti_deregister(d.comm, d.bytes.data()); },
      [](ErroneousArguments& d) { return tutti_alloc_on_device(d.comm, d.absurd, &d.memory); },
      [](ErroneousArguments& d) { return tutti_alloc_on_device(d.comm, 16, nullptr); },
      [](ErroneousArguments& d) { return tutti_register_window(d.comm, nullptr, 16); },
      [](ErroneousArguments& d) { return tutti_register_window(d.comm, d.bytes.data(), 16); },
      [](ErroneousArguments& d) { return tutti_register_window(d.comm, d.bytes.data(), d.absurd); },
      [](ErroneousArguments& d) { return tutti_deregister_window(d.comm, d.bytes.data()); },
  };
  return all;
}

inline const std::vector<Mistake>& mistakes_with_communicators() {
  static const std::vector<Mistake> all = {
      [](ErroneousArguments& d) { return tutti_split(nullptr, 0, 0, &d.other); },
      [](ErroneousArguments& d) { return tutti_split(d.comm, 0, 0, nullptr); },
      [](ErroneousArguments&) { return tutti_init(nullptr, nullptr); },
      [](ErroneousArguments& d) {
        d.init.ranks = d.absurd % 2 == 0 ? -1 : INT32_MAX;
        return tutti_init(&d.other, &d.init);
      },
      [](ErroneousArguments& d) {
        d.init.ranks = 2;
        d.init.rank = d.absurd % 2 == 0 ? 2 : -1;
        return tutti_init_begin(&d.joining, &d.init);
      },
      [](ErroneousArguments& d) {
        d.init.size = SIZE_MAX;
        return tutti_init(&d.other, &d.init);
      },
      [](ErroneousArguments& d) {
        d.init.ranks = 2;
        d.init.master_port = d.absurd % 2 == 0 ? -1 : 65536;
        return tutti_init(&d.other, &d.init);
      },
      [](ErroneousArguments& d) {
        d.init.ranks = 2;
        d.init.timeout = d.no_time;
        return tutti_init(&d.other, &d.init);
      },
      [](ErroneousArguments& d) {  // a store without functions, or of no size
        tutti_store_t store = TUTTI_STORE_INIT;
        if (d.random.once_in(2)) store.size = 1;
        d.init.ranks = 2;
        d.init.store = &store;
        return tutti_init_begin(&d.joining, &d.init);
      },
      [](ErroneousArguments& d) {  // a store whose functions fail
        tutti_store_t store = TUTTI_STORE_INIT;
        store.set = [](const char*, const char*, void*) { return -1; };
        store.get = [](const char*, char*, size_t, void*) { return -1; };
        d.init.ranks = 2;
        d.init.rank = d.random.once_in(2) ? 1 : 0;
        d.init.store = &store;
        d.init.timeout = 0.05;  // a failing get() is called again
        return tutti_init(&d.other, &d.init);
      },
      [](ErroneousArguments& d) { return tutti_init_begin(nullptr, &d.init); },
      [](ErroneousArguments& d) { return tutti_init_end(nullptr, &d.other); },
      [](ErroneousArguments& d) {
        const std::array<int32_t, 1> self = {tutti_rank(d.comm)};
        return tutti_create(d.comm, self.data(), 1, 0, nullptr);
      },
      [](ErroneousArguments& d) { return tutti_create(nullptr, nullptr, 0, 0, &d.other); },
      [](ErroneousArguments& d) { return tutti_create(d.comm, nullptr, 1, 0, &d.other); },
      [](ErroneousArguments& d) { return tutti_create(d.comm, nullptr, 0, 0, &d.other); },
      [](ErroneousArguments& d) {
        const std::array<int32_t, 1> self = {tutti_rank(d.comm)};
        return tutti_create(d.comm, self.data(), d.absurd, 0, &d.other);
      },
      [](ErroneousArguments& d) {
        const std::array<int32_t, 1> self = {tutti_rank(d.comm)};
        return tutti_create(d.comm, self.data(), 1, d.random.once_in(2) ? -1 : d.no_tag, &d.other);
      },
      [](ErroneousArguments& d) {
        const std::array<int32_t, 1> nobody = {d.no_rank};
        return tutti_create(d.comm, nobody.data(), 1, 0, &d.other);
      },
      [](ErroneousArguments& d) {
        const std::array<int32_t, 2> twice = {tutti_rank(d.comm), tutti_rank(d.comm)};
        return tutti_create(d.comm, twice.data(), 2, 0, &d.other);
      },
      [](ErroneousArguments&) { return tutti_while_waiting(nullptr, nullptr, nullptr); },
      [](ErroneousArguments&) { return tutti_comm_status(nullptr); },
      [](ErroneousArguments&) { return tutti_abort(nullptr, nullptr); },
  };
  return all;
}

inline void make_mistake(tutti_comm_t* comm, Random& random) {
  using Kinds = std::array<const std::vector<Mistake>*, 4>;
  const Kinds kinds = {&mistakes_with_calls(), &mistakes_with_works(), &mistakes_with_memory(),
                       &mistakes_with_communicators()};
  const uint64_t kind = random.below(kinds.size());
  const uint64_t which = random.below(kinds[kind]->size());
  ErroneousArguments desk{.comm = comm, .random = random};
  const tutti_status_t status = kinds[kind]->at(which)(desk);
  EXPECT_TRUE(status == TUTTI_INVALID_ARGUMENT || status == TUTTI_UNSUPPORTED ||
              status == TUTTI_SYSTEM || status == TUTTI_BOOTSTRAP)
      << status << " of mistake " << which << " of kind " << kind << ": " << tutti_error_text();
  EXPECT_GT(std::string(tutti_error_text()).size(), 10u) << "mistake " << which << " of " << kind;
  EXPECT_EQ(tutti_comm_status(comm), TUTTI_OK) << "mistake " << which << " of " << kind;
  EXPECT_EQ(desk.work, nullptr);
  EXPECT_EQ(desk.other, nullptr);
  EXPECT_EQ(desk.joining, nullptr);
  EXPECT_EQ(desk.prepared, nullptr);
  EXPECT_EQ(desk.memory, nullptr);
  EXPECT_NE(tutti_error_name(static_cast<tutti_status_t>(desk.absurd)), nullptr);
  tutti_work_free(nullptr);
  tutti_prepared_free(nullptr);
  tutti_destroy(nullptr);
  EXPECT_EQ(tutti_rank(nullptr), -1);
  EXPECT_EQ(tutti_size(nullptr), -1);
}

}  // namespace tutti::testing
