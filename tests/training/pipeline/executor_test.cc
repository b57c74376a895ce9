// Tests the order of a pipeline rank's entries, the inputs of each entry, and errors.
#include "training/pipeline/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "tests/support/ranks.h"
#include "training/pipeline/check.h"
#include "training/pipeline/schedules.h"

namespace tutti::training::pipeline {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using tutti::testing::run_ranks;
using tutti::testing::run_ranks_catching;

// Takes the place of a model. All elements of an output or gradient are a number that encodes its
// origin. Each entry checks that its inputs are the right ones, and that they stay valid for as
// long as promised.
class Numbers : public StageWork {
 public:
  explicit Numbers(int chunks) : chunks_(chunks) {}

  Tensor shape_after(int chunk, int micro_batch) const override {
    return tensor_at(static_cast<void*>(nullptr), DType::f32, 1 + micro_batch % 3, 5 + chunk);
  }
  Tensor forward(const Action& action, ConstTensor input) override {
    log(action);
    const auto [kind, micro_batch, chunk] = action.entry;
    Slot& slot = slots_[action.slot];
    EXPECT_FALSE(slot.used) << "the slot is another micro-batch's";
    slot = {.used = true, .input = input};
    check_input(action, slot);
    return make(slot.output, chunk, micro_batch, value_after(chunk, micro_batch));
  }
  Tensor backward(const Action& action, ConstTensor output_gradient) override {
    log(action);
    const auto [kind, micro_batch, chunk] = action.entry;
    Slot& slot = slots_[action.slot];
    EXPECT_TRUE(slot.used);
    slot.output_gradient = output_gradient;
    check_input(action, slot);
    check_gradient(action, slot);
    if (kind == Kind::backward) release(slot);
    if (chunk == 0) return {};
    return make(gradient_, chunk - 1, micro_batch, gradient_after(chunk - 1, micro_batch));
  }
  void backward_weight(const Action& action) override {
    log(action);
    Slot& slot = slots_[action.slot];
    EXPECT_TRUE(slot.used);
    check_input(action, slot);
    check_gradient(action, slot);
    release(slot);
  }
  void update(const Action& action) override { updates_.push_back(action.version); }

  const std::vector<Entry>& done() const { return done_; }
  const std::vector<int>& updates() const { return updates_; }
  // Called at each entry.
  std::function<void(const Entry&)> at_entry = [](const Entry&) {};
  // Without backward, nothing is saved: an output is valid until the next call.
  bool forward_only = false;

 private:
  struct Slot {
    bool used = false;
    ConstTensor input;
    ConstTensor output_gradient;
    std::vector<float> output;
  };

  static float value_after(int chunk, int micro_batch) {
    return static_cast<float>(100 * micro_batch + chunk + 1);
  }
  static float gradient_after(int chunk, int micro_batch) {
    return -value_after(chunk, micro_batch);
  }

  void log(const Action& action) {
    at_entry(action.entry);
    done_.push_back(action.entry);
  }
  Tensor make(std::vector<float>& memory, int chunk, int micro_batch, float value) {
    Tensor tensor = shape_after(chunk, micro_batch);
    memory.assign(static_cast<size_t>(tensor.size()), value);
    tensor.data = reinterpret_cast<std::byte*>(memory.data());
    return tensor;
  }
  void expect(ConstTensor tensor, int chunk, int micro_batch, float value) {
    const Tensor shape = shape_after(chunk, micro_batch);
    ASSERT_EQ(tensor.rows, shape.rows);
    ASSERT_EQ(tensor.cols, shape.cols);
    ASSERT_EQ(tensor.dtype, shape.dtype);
    const auto* values = reinterpret_cast<const float*>(tensor.data);
    EXPECT_THAT(std::vector<float>(values, values + tensor.size()), Each(value));
  }
  void check_input(const Action& action, const Slot& slot) {
    const auto [kind, micro_batch, chunk] = action.entry;
    SCOPED_TRACE(cat("input of ", describe(action.entry)));
    if (chunk > 0) {
      expect(slot.input, chunk - 1, micro_batch, value_after(chunk - 1, micro_batch));
    } else {
      EXPECT_TRUE(slot.input.empty());
    }
    if (forward_only) slots_[action.slot].used = false;
  }
  void check_gradient(const Action& action, const Slot& slot) {
    const auto [kind, micro_batch, chunk] = action.entry;
    SCOPED_TRACE(cat("gradient of ", describe(action.entry)));
    if (chunk + 1 < chunks_) {
      expect(slot.output_gradient, chunk, micro_batch, gradient_after(chunk, micro_batch));
    } else {
      EXPECT_TRUE(slot.output_gradient.empty());
    }
  }
  // Overwrites the output, so that a later reader finds wrong values.
  static void release(Slot& slot) {
    std::ranges::fill(slot.output, 1e9f);
    slot.used = false;
  }

  int chunks_;
  std::map<int, Slot> slots_;
  std::vector<float> gradient_;
  std::vector<Entry> done_;
  std::vector<int> updates_;
};

// Runs the plan twice on all ranks of a pipeline; the first run must not affect the second one.
void run(const Plan& plan, bool forward_only = false) {
  SCOPED_TRACE(cat(plan.schedule.name, " on ", plan.schedule.ranks, ", ",
                   plan.schedule.micro_batches, " micro-batches"));
  const Bounds bounds = check(plan);
  run_ranks(plan.schedule.ranks, [&](const Job& job) {
    Communicator stages = Communicator::init(job);
    Executor executor(Boundary(stages, stages.split(job.rank, 0)));
    int64_t sent = 0;
    for (int time = 0; time < 2; ++time) {
      Numbers numbers(plan.schedule.chunks);
      numbers.forward_only = forward_only;
      executor.run(plan, numbers);
      EXPECT_EQ(numbers.done(), plan.schedule.table[static_cast<size_t>(job.rank)]);
      std::vector<int> versions;
      for (const Action& action : plan.ranks[static_cast<size_t>(job.rank)].actions) {
        if (action.kind == Action::Kind::update) versions.push_back(action.version);
        if (action.kind != Action::Kind::send) continue;
        const Entry& made = action.entry;
        const int chunk = made.kind == Kind::forward ? made.chunk : made.chunk - 1;
        sent += static_cast<int64_t>(numbers.shape_after(chunk, made.micro_batch).bytes());
      }
      EXPECT_EQ(numbers.updates(), versions);
      EXPECT_EQ(executor.bytes_sent(), sent);
      if (!forward_only) {
        EXPECT_EQ(executor.most_activations(),
                  bounds.ranks[static_cast<size_t>(job.rank)].activations);
      }
    }
  });
}

// Returns the schedules of all kinds that exist for p ranks, with 1 to 3 virtual stages.
std::vector<Schedule> schedules(int p, int m) {
  std::vector<Schedule> all;
  for (const ScheduleKind& kind : all_schedules()) {
    for (const int v : {1, 2, 3}) {
      Shape shape{.ranks = p, .micro_batches = m, .virtual_stages = v, .accumulated = 1};
      if (v > 1 && !kind.has_virtual_stages) continue;
      shape.micro_batches = kind.round_up(shape);
      if (kind.why_not(shape).empty()) all.push_back(make_schedule(kind, shape));
    }
  }
  return all;
}

TEST(ExecutorTest, EveryEntryGetsItsInputs) {
  for (const int p : {1, 2, 3, 4}) {
    for (const int m : {1, 2, 3, 6}) {
      for (const Schedule& schedule : schedules(p, m)) run(make_plan(schedule));
    }
  }
}

TEST(ExecutorTest, ForwardAlone) {
  for (const int p : {1, 2, 4}) {
    for (const Schedule& schedule : schedules(p, 4)) {
      if (schedule.updates != Updates::flushed) continue;
      run(make_plan(forward_only(schedule)), true);
    }
  }
}

TEST(ExecutorTest, RecordsEachEntryAndTheBubbles) {
  const Plan plan = make_plan(zero_bubble_h1(3, 4));
  run_ranks(3, [&](const Job& job) {
    Communicator stages = Communicator::init(job);
    Executor executor(Boundary(stages, stages.split(job.rank, 0)));
    Trace trace;
    executor.record(trace);
    Numbers numbers(3);
    executor.run(plan, numbers);
    std::vector<std::string> computed;
    for (const TraceEvent& event : trace.events()) {
      ASSERT_EQ(event.arguments.size(), 3u);
      EXPECT_EQ(event.arguments[0].value, job.rank);
      EXPECT_LE(event.start, event.end);
      if (event.category == TraceCategory::compute) {
        computed.push_back(event.name);
      } else {
        EXPECT_EQ(event.category, TraceCategory::bubble);
        EXPECT_THAT(event.name, HasSubstr("bubble before "));
      }
    }
    std::vector<std::string> expected;
    for (const Entry& entry : numbers.done()) expected.push_back(to_string(entry, false));
    EXPECT_EQ(computed, expected);
    EXPECT_EQ(expected.size(), 12u) << "4 of each kind";
  });
}

// --- errors ---

TEST(ExecutorTest, AnErrorNamesThePlaceAndEndsAllRanks) {
  const Plan plan = make_plan(one_f_one_b(4, 6));
  const Entry fault{Kind::backward, 2, 1};
  const auto errors = run_ranks_catching(4, [&](const Job& job) {
    Communicator stages = Communicator::init(job);
    Executor executor(Boundary(stages, stages.split(job.rank, 0)));
    Numbers numbers(4);
    numbers.at_entry = [&](const Entry& entry) {
      if (entry == fault) throw Error(ErrorCode::unsupported, "a planted fault");
    };
    executor.run(plan, numbers);
  });
  for (int rank = 0; rank < 4; ++rank) {
    const auto& error = errors[static_cast<size_t>(rank)];
    ASSERT_TRUE(error) << rank;
    EXPECT_THAT(error->what(),
                AllOf(HasSubstr(cat("rank ", rank, " (")),
                      HasSubstr(cat("stage ", rank, ", in the ")), HasSubstr("a planted fault"),
                      HasSubstr("stage 1, in the backward of micro-batch 2 through chunk 1")));
  }
  EXPECT_EQ(errors[1]->code(), ErrorCode::unsupported);
  EXPECT_THAT(errors[1]->what(),
              AllOf(HasSubstr("stage 1, in the backward of micro-batch 2 through chunk 1, which "
                              "needs the backward of micro-batch 2 through chunk 2 on rank 2 ("),
                    HasSubstr("stage 2")));
}

}  // namespace
}  // namespace tutti::training::pipeline
