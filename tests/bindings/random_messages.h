// Makes a random exchange of messages over the C interface, with tags, receives from any source,
// receives longer than their messages, and probes. Each receiver receives in any order.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "bindings/c/tutti.h"
#include "tests/bindings/random_call.h"

namespace tutti::testing {

class Messages {
 public:
  // `shared`: generator with the same state on all ranks. `own`: this rank's generator.
  Messages(tutti_comm_t* comm, Random& shared, Random& own)
      : comm_(comm), own_(own), rank_(tutti_rank(comm)) {
    const auto p = static_cast<uint64_t>(tutti_size(comm));
    const uint64_t messages = shared.below(4 * p);
    for (uint64_t i = 0; i < messages; ++i) {
      const auto from = static_cast<int32_t>(shared.below(p));
      const auto to = static_cast<int32_t>(shared.below(p));
      const auto tag = static_cast<int32_t>(shared.below(3));
      const uint64_t count = shared.below(kMost);
      if (from == rank_) outgoing_.push_back({to, tag, values(i, count)});
      if (to == rank_) coming_[{from, tag}].push_back(values(i, count));
      if (to == rank_) ++expected_;
    }
  }

  void exchange() {
    std::vector<tutti_work_t*> works;
    for (const Outgoing& message : outgoing_) {
      tutti_call_options_t options = TUTTI_CALL_OPTIONS_INIT;
      options.tag = message.tag;
      works.push_back(nullptr);
      ASSERT_EQ(tutti_send_async(comm_, whole(message.values), message.to, &options, &works.back()),
                TUTTI_OK)
          << tutti_error_text();
    }
    for (; expected_ > 0 && !::testing::Test::HasFatalFailure(); --expected_) receive();
    for (tutti_work_t* work : works) {
      ASSERT_EQ(tutti_wait(work), TUTTI_OK) << tutti_error_text();
      tutti_work_free(work);
    }
    // Later messages must not match the any-source receives above.
    ASSERT_EQ(tutti_barrier(comm_, nullptr), TUTTI_OK) << tutti_error_text();
  }

 private:
  static constexpr uint64_t kMost = 3'000;
  using Values = std::vector<int32_t>;
  struct Outgoing {
    int32_t to;
    int32_t tag;
    Values values;
  };

  static Values values(uint64_t message, uint64_t count) {
    Values result(count);
    for (uint64_t i = 0; i < count; ++i) result[i] = static_cast<int32_t>(message * 10'007 + i);
    return result;
  }
  static tutti_buffer_t whole(const Values& values) {
    return tutti_host(values.data(), values.size(), TUTTI_I32);
  }

  void receive() {
    tutti_call_options_t options = TUTTI_CALL_OPTIONS_INIT;
    options.tag = TUTTI_ANY_TAG;
    options.may_be_shorter = 1;
    int32_t source = TUTTI_ANY_SOURCE;
    Values got(kMost);
    tutti_message_t message = TUTTI_MESSAGE_INIT;
    if (own_.once_in(2)) {  // probes first, and receives exactly the probed message
      int found = 0;
      while (found == 0) {
        ASSERT_EQ(own_.once_in(2)
                      ? tutti_probe(comm_, TUTTI_ANY_SOURCE, TUTTI_ANY_TAG, &message)
                      : tutti_probe_now(comm_, TUTTI_ANY_SOURCE, TUTTI_ANY_TAG, &found, &message),
                  TUTTI_OK)
            << tutti_error_text();
        found |= message.dtype == TUTTI_I32 ? 1 : 0;
      }
      source = message.source;
      options.tag = message.tag;
      options.may_be_shorter = 0;
      got.resize(message.count);
    }
    const tutti_message_t probed = message;
    if (own_.once_in(2)) {
      ASSERT_EQ(tutti_recv_message(comm_, whole(got), source, &options, &message), TUTTI_OK)
          << tutti_error_text();
    } else {
      tutti_work_t* work = nullptr;
      ASSERT_EQ(tutti_recv_async(comm_, whole(got), source, &options, &work), TUTTI_OK);
      ASSERT_EQ(tutti_wait(work), TUTTI_OK) << tutti_error_text();
      ASSERT_EQ(tutti_work_message(work, &message), TUTTI_OK) << tutti_error_text();
      tutti_work_free(work);
    }
    if (source != TUTTI_ANY_SOURCE) {
      ASSERT_EQ(message.count, probed.count);
    }
    std::deque<Values>& line = coming_[{message.source, message.tag}];
    ASSERT_FALSE(line.empty()) << "from rank " << message.source << " with tag " << message.tag;
    got.resize(message.count);
    ASSERT_EQ(got, line.front());
    line.pop_front();
  }

  tutti_comm_t* comm_;
  Random& own_;
  int rank_;
  std::vector<Outgoing> outgoing_;
  std::map<std::pair<int32_t, int32_t>, std::deque<Values>> coming_;  // by source and tag
  uint64_t expected_ = 0;
};

inline void exchange_messages(tutti_comm_t* comm, Random& shared, Random& own) {
  Messages(comm, shared, own).exchange();
}

}  // namespace tutti::testing
