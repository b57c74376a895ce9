// Tests traces: the recorded events, and the file that contains the events of all ranks.
#include "training/core/trace.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "tests/support/ranks.h"
#include "training/engine/tracing_hooks.h"

namespace tutti::training {
namespace {

using namespace std::chrono_literals;  // NOLINT(google-build-using-namespace): for 5us
using tutti::testing::run_ranks;
using tutti::testing::run_ranks_catching;

std::string file_path(const std::string& name) {
  return (std::filesystem::path(::testing::TempDir()) / name).string();
}

// Returns the events of one phase ("X": spans, "M": names) and one rank.
std::vector<Json> events_of(const Json& file, const std::string& phase, int rank) {
  std::vector<Json> found;
  for (const Json& event : file.at("traceEvents")) {
    if (event.at("ph") == phase && event.at("pid") == rank) found.push_back(event);
  }
  return found;
}

// Writes a file of all ranks' traces. The step of rank r starts r microseconds after that of rank
// 0. Returns the parsed file.
Json example_file(int ranks) {
  const std::string path = file_path("example_trace.json");
  const TraceEvent::Time base = std::chrono::steady_clock::now() - 1s;
  run_ranks(ranks, [&](const Job& job) {
    Communicator communicator = Communicator::init(job);
    Trace trace;
    const TraceEvent::Time start = base + std::chrono::microseconds(job.rank);
    trace.add({"h.0 forward", TraceCategory::compute, start + 5us, start + 9us, {}});
    trace.add(
        {"all_reduce", TraceCategory::communication, start + 10us, start + 20us, {{"bucket", 0}}});
    trace.add(
        {"all_reduce", TraceCategory::communication, start + 15us, start + 30us, {{"bucket", 1}}});
    trace.add(
        {"all_reduce", TraceCategory::communication, start + 20us, start + 25us, {{"bucket", 2}}});
    trace.add({"update", TraceCategory::optimizer, start + 30us, start + 30500ns, {}});
    // Recorded last, although it started first.
    trace.add({"step", TraceCategory::compute, start, start + 40us, {}});
    write_trace(communicator, trace, path);
  });
  std::ifstream file(path);
  return Json::parse(std::string(std::istreambuf_iterator(file), {}));
}

TEST(TraceTest, HasEveryRanksEventsOnOneClock) {
  constexpr int kRanks = 3;
  const Json file = example_file(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) {
    const std::vector<Json> events = events_of(file, "X", rank);
    ASSERT_EQ(events.size(), 6u) << "rank " << rank;
    const std::vector<std::string> names = {"step",       "h.0 forward", "all_reduce",
                                            "all_reduce", "all_reduce",  "update"};
    const std::vector<double> starts = {0, 5, 10, 15, 20, 30};
    const std::vector<double> lengths = {40, 4, 10, 15, 5, 0.5};
    for (size_t i = 0; i < events.size(); ++i) {
      EXPECT_EQ(events[i].at("name"), names[i]);
      EXPECT_EQ(events[i].at("ts"), starts[i] + rank);
      EXPECT_EQ(events[i].at("dur"), lengths[i]);
    }
    EXPECT_EQ(events[1].at("cat"), "compute");
    EXPECT_EQ(events[2].at("cat"), "communication");
    EXPECT_EQ(events[3].at("args").at("bucket"), 1);
    EXPECT_EQ(events[5].at("cat"), "optimizer");
  }
}

// Viewers require that two events of a thread are nested or disjoint.
TEST(TraceTest, OverlappingCommunicationIsOnSeparateThreads) {
  const Json file = example_file(1);
  std::vector<int> threads;
  for (const Json& event : events_of(file, "X", 0)) threads.push_back(event.at("tid"));
  EXPECT_EQ(threads, (std::vector<int>{0, 0, 1, 2, 1, 0}));
}

TEST(TraceTest, NamesRanksAndThreads) {
  const Json file = example_file(2);
  for (int rank = 0; rank < 2; ++rank) {
    std::vector<std::string> names;
    for (const Json& event : events_of(file, "M", rank)) {
      const Json& arguments = event.at("args");
      if (arguments.contains("name")) names.push_back(arguments.at("name"));
    }
    ASSERT_EQ(names.size(), 4u);
    EXPECT_EQ(names[0].find("rank " + std::to_string(rank) + " ("), 0u) << names[0];
    EXPECT_NE(names[0].find("pid "), std::string::npos) << names[0];
    EXPECT_EQ(names[1], "compute");
    EXPECT_EQ(names[2], "communication");
  }
}

TEST(TraceTest, MayBeEmpty) {
  const std::string path = file_path("empty_trace.json");
  run_ranks(2, [&](const Job& job) {
    Communicator communicator = Communicator::init(job);
    write_trace(communicator, {}, path);
  });
  std::ifstream file(path);
  EXPECT_TRUE(
      events_of(Json::parse(std::string(std::istreambuf_iterator(file), {})), "X", 0).empty());
}

TEST(TraceTest, AllRanksLearnThatTheFileCannotBeWritten) {
  const std::string path = file_path("no_such_directory/trace.json");
  const std::vector<std::optional<Error>> errors = run_ranks_catching(2, [&](const Job& job) {
    Communicator communicator = Communicator::init(job);
    write_trace(communicator, {}, path);
  });
  for (const std::optional<Error>& error : errors) {
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->code(), ErrorCode::system);
    EXPECT_NE(std::string(error->what()).find(path), std::string::npos) << error->what();
  }
}

TEST(TraceSpanTest, RecordsItsLifetime) {
  Trace trace;
  {
    const TraceSpan outer(&trace, "outer", TraceCategory::data);
    const TraceSpan inner(&trace, "inner", TraceCategory::optimizer);
    const TraceSpan nowhere(nullptr, "nowhere", TraceCategory::compute);
  }
  ASSERT_EQ(trace.events().size(), 2u);
  const TraceEvent& inner = trace.events()[0];
  const TraceEvent& outer = trace.events()[1];
  EXPECT_EQ(inner.name, "inner");
  EXPECT_EQ(outer.category, TraceCategory::data);
  EXPECT_LE(outer.start, inner.start);
  EXPECT_LE(inner.start, inner.end);
  EXPECT_LE(inner.end, outer.end);
}

// --- automatic records ---

class Stub : public Unit {
 public:
  Stub(ParameterTable& table, std::string name) : name_(std::move(name)) {}
  std::string name() const override { return name_; }
  OutputShape output_shape() const override { return {}; }
  Tensor forward(Pass&, ConstTensor) override { return {}; }
  Tensor backward(Pass&, ConstTensor) override { return {}; }

 private:
  std::string name_;
};

class StubModel : public Model {
 public:
  StubModel() {
    add_unit<Stub>("embed");
    add_unit<Stub>("h.0");
  }
  double flops_per_sample() const override { return 0; }
  Json configuration() const override { return {{"kind", "stub"}}; }
  int64_t targets_per_sample() const override { return 1; }
};

// Records each call, and the number of events that the trace had at that time.
class Calls : public UnitHooks {
 public:
  explicit Calls(const Trace& trace) : trace_(trace) {}
  void before_forward(int unit) override { note("before_forward", unit); }
  void after_forward(int unit) override { note("after_forward", unit); }
  void before_backward(int unit) override { note("before_backward", unit); }
  void after_backward(int unit) override { note("after_backward", unit); }

  std::vector<std::string> calls;

 private:
  void note(const std::string& what, int unit) {
    calls.push_back(what + " " + std::to_string(unit) + ", " +
                    std::to_string(trace_.events().size()));
  }
  const Trace& trace_;
};

TEST(TracingHooksTest, RecordUnitsAndPassOn) {
  Trace trace;
  const StubModel model;
  Calls calls(trace);
  TracingHooks hooks(calls, model, trace);
  hooks.before_forward(1);
  hooks.after_forward(1);
  hooks.before_backward(0);
  hooks.after_backward(0);
  // The span of a unit is closed before `inner` is called.
  EXPECT_EQ(calls.calls, (std::vector<std::string>{"before_forward 1, 0", "after_forward 1, 1",
                                                   "before_backward 0, 1", "after_backward 0, 2"}));
  ASSERT_EQ(trace.events().size(), 2u);
  EXPECT_EQ(trace.events()[0].name, "h.0 forward");
  EXPECT_EQ(trace.events()[1].name, "embed backward");
  EXPECT_LE(trace.events()[0].end, trace.events()[1].start);
}

TEST(TracingHooksTest, RecordCollectives) {
  Trace trace;
  const TraceEvent::Time start = std::chrono::steady_clock::now();
  record_collectives(trace)("reduce_scatter", 3, start, start + 7us);
  ASSERT_EQ(trace.events().size(), 1u);
  const TraceEvent& event = trace.events()[0];
  EXPECT_EQ(event.name, "reduce_scatter");
  EXPECT_EQ(event.category, TraceCategory::communication);
  EXPECT_EQ(event.end - event.start, 7us);
  ASSERT_EQ(event.arguments.size(), 1u);
  EXPECT_EQ(event.arguments[0].value, 3);
}

}  // namespace
}  // namespace tutti::training
