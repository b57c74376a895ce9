// Tests the profiler plugin with events as NCCL reports them, in every interface version.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/json.h"
#include "bindings/nccl_plugins/profiler_abi.h"
#include "tests/bindings/nccl_plugins/plugin_host.h"

namespace tutti::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

std::filesystem::path folder() { return ::testing::TempDir(); }

// Environment variables are read at the first use of the library.
const Library& library() {
  ::setenv("TUTTI_NCCL_PROFILE", (folder() / "trace.json").c_str(), 1);
  static const Library opened;
  return opened;
}

// Reads the only file in the folder whose name contains `part`.
Json read_trace(const std::string& part) {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder())) {
    if (entry.path().filename().string().find(part) != std::string::npos) {
      found.push_back(entry.path());
    }
  }
  EXPECT_EQ(found.size(), 1U) << part;
  if (found.empty()) return Json::object();
  std::ifstream file(found[0]);
  Json trace = Json::parse(std::string(std::istreambuf_iterator<char>(file), {}));
  file.close();
  std::filesystem::remove(found[0]);
  return trace;
}

// Returns the events of a category.
std::vector<Json> events_of(const Json& trace, const std::string& category) {
  std::vector<Json> events;
  for (const Json& event : trace["traceEvents"]) {
    if (event.value("cat", std::string()) == category) events.push_back(event);
  }
  return events;
}

double start_of(const Json& event) { return event["ts"]; }
double end_of(const Json& event) { return start_of(event) + event["dur"].get<double>(); }

// Functions and types of one version of the interface.
template <typename Profiler, typename Description, typename Arguments, int kVersion>
struct Version {
  static constexpr int kNumber = kVersion;
  using Descr = Description;
  using Args = Arguments;

  const Profiler* plugin = library().find<Profiler>("ncclProfiler_v" + std::to_string(kVersion));
  void* context = nullptr;
  int mask = -1;

  ncclResult_t init(uint64_t communicator, int rank) {
    if constexpr (kVersion == 3) {
      return plugin->init(&context, &mask);
    } else if constexpr (kVersion == 4) {
      return plugin->init(&context, &mask, "mine", communicator, 2, 16, rank, log_of_host);
    } else {
      return plugin->init(&context, communicator, &mask, "mine", 2, 16, rank, log_of_host);
    }
  }

  static Description describe(int type, void* parent, int rank) {
    Description what{};
    what.type = static_cast<decltype(what.type)>(type);
    what.parentObj = parent;
    what.rank = rank;
    return what;
  }
  void* start(Description& what) {
    void* handle = &handle;
    EXPECT_EQ(plugin->startEvent(context, &handle, &what), ncclSuccess);
    return handle;
  }
  void stop(void* handle) { EXPECT_EQ(plugin->stopEvent(handle), ncclSuccess); }
  void enter(void* handle, ncclProfilerEventState_t state, Arguments* arguments = nullptr) {
    EXPECT_EQ(plugin->recordEventState(handle, state, arguments), ncclSuccess);
  }
  // Returns the part of the file's name that identifies the communicator, or the process in
  // versions that do not report communicators.
  static std::string file_part() {
    return kVersion == 3 ? "comm-" + std::to_string(::getpid()) : "comm-00000000deadbeef.rank-5";
  }
};

template <typename V>
class ProfilerTest : public ::testing::Test {};

using Versions = ::testing::Types<
    Version<ncclProfiler_v3_t, ncclProfilerEventDescr_v3_t, ncclProfilerEventStateArgs_v3_t, 3>,
    Version<ncclProfiler_v4_t, ncclProfilerEventDescr_v4_t, ncclProfilerEventStateArgs_v4_t, 4>,
    Version<ncclProfiler_v5_t, ncclProfilerEventDescr_v5_t, ncclProfilerEventStateArgs_v4_t, 5>,
    Version<ncclProfiler_v5_t, ncclProfilerEventDescr_v5_t, ncclProfilerEventStateArgs_v4_t, 6>>;
TYPED_TEST_SUITE(ProfilerTest, Versions);

template <typename V>
void* start_all_reduce(V& profiler, void* parent) {
  auto what = V::describe(ncclProfileColl, parent, 5);
  what.coll.seqNumber = 42;
  what.coll.func = "AllReduce";
  what.coll.count = 1024;
  what.coll.datatype = "ncclFloat32";
  what.coll.algo = "RING";
  what.coll.proto = "SIMPLE";
  return profiler.start(what);
}

template <typename V>
void* start_proxy_op(V& profiler, void* parent, pid_t pid, int channel) {
  auto what = V::describe(ncclProfileProxyOp, parent, 5);
  what.proxyOp = {.pid = pid,
                  .channelId = static_cast<uint8_t>(channel),
                  .peer = 6,
                  .nSteps = 2,
                  .chunkSize = 4096,
                  .isSend = 1};
  return profiler.start(what);
}

template <typename V>
void run_step(V& profiler, void* op, int step) {
  auto what = V::describe(ncclProfileProxyStep, op, 5);
  what.proxyStep.step = step;
  void* const handle = profiler.start(what);
  ASSERT_NE(handle, nullptr);
  typename V::Args arguments{};
  if constexpr (V::kNumber >= 4) arguments.proxyStep.transSize = 4096;
  profiler.enter(handle, ncclProfilerProxyStepSendGPUWait, &arguments);
  profiler.enter(handle, ncclProfilerProxyStepSendWait, &arguments);
  profiler.stop(handle);
}

TYPED_TEST(ProfilerTest, WritesEventsOfNccl) {
  TypeParam profiler;
  ASSERT_NE(profiler.plugin, nullptr);
  ASSERT_EQ(profiler.init(0xdeadbeef, 5), ncclSuccess);
  for (const int kind : {ncclProfileGroup, ncclProfileColl, ncclProfileP2p, ncclProfileProxyOp,
                         ncclProfileProxyStep}) {
    EXPECT_NE(profiler.mask & kind, 0) << kind;
  }

  auto group = TypeParam::describe(ncclProfileGroup, nullptr, 5);
  void* const in_group = profiler.start(group);
  void* const call = start_all_reduce(profiler, in_group);
  auto message = TypeParam::describe(ncclProfileP2p, in_group, 5);
  message.p2p.func = "Send";
  message.p2p.count = 7;
  message.p2p.peer = 3;
  profiler.stop(profiler.start(message));
  // A call counts as stopped once it is enqueued; the proxy continues.
  profiler.stop(call);
  profiler.stop(in_group);
  void* const op = start_proxy_op(profiler, call, ::getpid(), 2);
  profiler.enter(op, ncclProfilerProxyOpInProgress_v4);
  run_step(profiler, op, 0);
  run_step(profiler, op, 1);
  profiler.stop(op);
  void* const endless = start_all_reduce(profiler, nullptr);
  EXPECT_NE(endless, nullptr);
  auto unknown = TypeParam::describe(1 << 7, nullptr, 5);
  EXPECT_EQ(profiler.start(unknown), nullptr);
  profiler.stop(nullptr);
  profiler.enter(nullptr, ncclProfilerProxyStepSendWait);
  ASSERT_EQ(profiler.plugin->finalize(profiler.context), ncclSuccess);

  const Json trace = read_trace(TypeParam::file_part());
  const auto calls = events_of(trace, "call");
  ASSERT_EQ(calls.size(), 3U);
  EXPECT_EQ(calls[0]["name"], "AllReduce");
  EXPECT_EQ(calls[0]["pid"], 5);
  EXPECT_EQ(calls[0]["args"]["call"], 42);
  EXPECT_EQ(calls[0]["args"]["algorithm"], "RING");
  EXPECT_EQ(calls[0]["args"]["protocol"], "SIMPLE");
  EXPECT_FALSE(calls[0]["args"].contains("unfinished"));
  EXPECT_EQ(calls[1]["name"], "Send");
  EXPECT_EQ(calls[1]["args"]["peer"], 3);
  EXPECT_TRUE(calls[2]["args"]["unfinished"].template get<bool>());
  const auto groups = events_of(trace, "group");
  const auto ops = events_of(trace, "proxy op");
  const auto steps = events_of(trace, "proxy step");
  ASSERT_EQ(groups.size(), 1U);
  ASSERT_EQ(ops.size(), 1U);
  ASSERT_EQ(steps.size(), 2U);
  EXPECT_EQ(ops[0]["name"], "send");
  EXPECT_EQ(ops[0]["args"]["channel"], 2);
  EXPECT_EQ(steps[1]["args"]["step"], 1);
  const Json& states = steps[1]["args"]["after_us"];
  EXPECT_LE(states["waits for the GPU to give"], states["waits for the send"]);
  if (TypeParam::kNumber >= 4) {
    EXPECT_EQ(steps[1]["args"]["bytes"], 4096);
  }
  // Each event encloses those that it caused, up to rounding of nanoseconds.
  constexpr double kRounding = 0.01;
  EXPECT_GE(end_of(groups[0]) + kRounding, end_of(calls[0]));
  EXPECT_GE(end_of(calls[0]) + kRounding, end_of(ops[0]));
  EXPECT_GE(end_of(ops[0]) + kRounding, end_of(steps[1]));
  EXPECT_LE(start_of(calls[0]), start_of(ops[0]));
  EXPECT_LE(end_of(steps[0]), start_of(steps[1]) + kRounding);
}

TYPED_TEST(ProfilerTest, SkipsWorkForOtherProcesses) {
  TypeParam profiler;
  ASSERT_EQ(profiler.init(0xdeadbeef, 5), ncclSuccess);
  // Foreign pointers, which are not memory of this process.
  void* const foreign = reinterpret_cast<void*>(uintptr_t{64});
  void* const own_context = std::exchange(profiler.context, foreign);
  EXPECT_EQ(start_proxy_op(profiler, foreign, ::getpid() + 1, 0), nullptr);
  auto step = TypeParam::describe(ncclProfileProxyStep, nullptr, 5);
  EXPECT_EQ(profiler.start(step), nullptr);
  profiler.context = own_context;
  ASSERT_EQ(profiler.plugin->finalize(profiler.context), ncclSuccess);
  EXPECT_TRUE(events_of(read_trace(TypeParam::file_part()), "proxy op").empty());
}

TYPED_TEST(ProfilerTest, RecordsManyThreads) {
  TypeParam profiler;
  ASSERT_EQ(profiler.init(0xdeadbeef, 5), ncclSuccess);
  void* const call = start_all_reduce(profiler, nullptr);
  constexpr int kThreads = 4;
  constexpr int kSteps = 200;
  {
    std::vector<std::jthread> threads;
    for (int channel = 0; channel < kThreads; ++channel) {
      threads.emplace_back([&profiler, call, channel] {
        void* const op = start_proxy_op(profiler, call, ::getpid(), channel);
        for (int step = 0; step < kSteps; ++step) run_step(profiler, op, step);
        profiler.stop(op);
      });
    }
  }
  profiler.stop(call);
  ASSERT_EQ(profiler.plugin->finalize(profiler.context), ncclSuccess);
  const Json trace = read_trace(TypeParam::file_part());
  EXPECT_EQ(events_of(trace, "proxy op").size(), size_t{kThreads});
  const auto steps = events_of(trace, "proxy step");
  EXPECT_EQ(steps.size(), size_t{kThreads * kSteps});
  // Events on one thread of the trace do not overlap.
  std::map<int, double> ends;
  for (const Json& step : steps) {
    double& end = ends[step["tid"]];
    EXPECT_LE(end, start_of(step) + 0.01);
    end = end_of(step);
  }
}

TYPED_TEST(ProfilerTest, RecordsCallsAndLaunchesSinceV5) {
  if constexpr (TypeParam::kNumber >= 5) {
    TypeParam profiler;
    ASSERT_EQ(profiler.init(0xdeadbeef, 5), ncclSuccess);
    auto group = TypeParam::describe(ncclProfileGroupApi, nullptr, 5);
    group.groupApi.groupDepth = 2;
    void* const in_group = profiler.start(group);
    profiler.enter(in_group, ncclProfilerGroupStartApiStop);
    auto call = TypeParam::describe(ncclProfileCollApi, in_group, 5);
    call.collApi.func = "AllGather";
    call.collApi.count = 99;
    profiler.stop(profiler.start(call));
    auto message = TypeParam::describe(ncclProfileP2pApi, in_group, 5);
    message.p2pApi.func = "Recv";
    profiler.stop(profiler.start(message));
    auto launch = TypeParam::describe(ncclProfileKernelLaunch, in_group, 5);
    profiler.stop(profiler.start(launch));
    profiler.stop(in_group);
    ASSERT_EQ(profiler.plugin->finalize(profiler.context), ncclSuccess);
    const Json trace = read_trace(TypeParam::file_part());
    EXPECT_EQ(events_of(trace, "group API").at(0)["args"]["depth"], 2);
    ASSERT_EQ(events_of(trace, "call API").size(), 2U);
    EXPECT_EQ(events_of(trace, "call API")[0]["args"]["count"], 99);
    EXPECT_EQ(events_of(trace, "call API")[1]["name"], "Recv");
    EXPECT_EQ(events_of(trace, "kernel launch").size(), 1U);
  }
}

TEST(ProfilerFile, ReportsAFileThatCannotBeWritten) {
  const auto blocked = folder() / "trace.comm-0000000000000bad.rank-1.json";
  std::filesystem::create_directory(blocked);
  const auto* const plugin = library().find<ncclProfiler_v5_t>("ncclProfiler_v5");
  void* context = nullptr;
  int mask = 0;
  ASSERT_EQ(plugin->init(&context, 0xbad, &mask, nullptr, 1, 2, 1, log_of_host), ncclSuccess);
  EXPECT_EQ(plugin->finalize(context), ncclSuccess);  // the failure does not stop NCCL
  EXPECT_THAT(take_log(NCCL_LOG_WARN), Contains(HasSubstr("cannot write the trace")));
  std::filesystem::remove(blocked);
}

}  // namespace
}  // namespace tutti::testing
