#include "training/core/trace.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <limits>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/reduce_op.h"
#include "base/text.h"
#include "training/core/group.h"

namespace tutti::training {
namespace {

using Time = TraceEvent::Time;

constexpr int kRoot = 0;

int64_t nanoseconds(Time time) { return std::chrono::nanoseconds(time.time_since_epoch()).count(); }

const char* name_of(TraceCategory category) {
  constexpr std::array kNames = {"compute", "communication", "data", "optimizer", "bubble", "step"};
  return kNames.at(static_cast<size_t>(category));
}

// Alignment of the clocks of machines.

struct MachineClock {
  uint64_t machine = 0;  // equal on ranks that read the same clock
  int64_t mark = 0;      // reading of the clock at the end of the barrier
};
static_assert(sizeof(MachineClock) == 2 * sizeof(int64_t));

// Returns a hash that is equal on ranks that share a kernel, and therefore its monotonic clock. The
// hash is computed from boot_id or, if boot_id cannot be read, from the rank.
uint64_t machine_of(int rank) {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  if (!(file >> id)) id = cat("rank ", rank);
  return std::hash<std::string>()(id);
}

// Collective. Returns the reading of this rank's clock at time 0 of the trace.
int64_t time_zero(Communicator& communicator, const std::deque<TraceEvent>& events) {
  communicator.barrier();
  const MachineClock own{machine_of(communicator.rank()),
                         nanoseconds(std::chrono::steady_clock::now())};
  std::vector<MachineClock> clocks(static_cast<size_t>(communicator.size()));
  communicator.all_gather({&own, 2, DType::i64}, {clocks.data(), 2 * clocks.size(), DType::i64});
  const auto first = std::ranges::find(clocks, own.machine, &MachineClock::machine);

  std::array<int64_t, 1> earliest = {0};  // start of the earliest event, relative to the mark
  for (const TraceEvent& event : events) {
    earliest[0] = std::min(earliest[0], nanoseconds(event.start) - first->mark);
  }
  communicator.all_reduce(std::span<int64_t>(earliest), ReduceOp::min);
  return first->mark + earliest[0];
}

// Events as text.

// Assigns communication to threads of the trace, because the events of one thread must not overlap.
class Lanes {
 public:
  int place(const TraceEvent& event) {
    const auto free = std::ranges::find_if(ends_, [&](Time end) { return end <= event.start; });
    const auto lane = std::distance(ends_.begin(), free);
    if (free == ends_.end()) ends_.emplace_back();
    ends_[static_cast<size_t>(lane)] = event.end;
    return 1 + static_cast<int>(lane);
  }
  int count() const { return static_cast<int>(ends_.size()); }

 private:
  std::vector<Time> ends_;
};

Json name_event(const char* what, int rank, int thread, const std::string& name) {
  return {{"name", what}, {"ph", "M"}, {"pid", rank}, {"tid", thread}, {"args", {{"name", name}}}};
}

Json event_json(const TraceEvent& event, int rank, int thread, int64_t zero) {
  const auto microseconds = [](int64_t ns) { return static_cast<double>(ns) / 1000; };
  Json json{{"name", event.name},
            {"cat", name_of(event.category)},
            {"ph", "X"},
            {"pid", rank},
            {"tid", thread},
            {"ts", microseconds(nanoseconds(event.start) - zero)},
            {"dur", microseconds(nanoseconds(event.end) - nanoseconds(event.start))}};
  for (const TraceArgument& argument : event.arguments)
    json["args"][argument.name] = argument.value;
  return json;
}

// Returns this rank's events, one per line, ordered by start. An enclosing event precedes the
// events inside it.
std::string lines(const Communicator& communicator, const Trace& trace, int64_t zero) {
  std::vector<TraceEvent> events(trace.events().begin(), trace.events().end());
  std::ranges::stable_sort(events, [](const TraceEvent& a, const TraceEvent& b) {
    return a.start != b.start ? a.start < b.start : a.end > b.end;
  });
  const int rank = communicator.rank();
  std::vector<Json> all = {name_event("process_name", rank, 0, communicator.describe(rank)),
                           name_event("thread_name", rank, 0, "compute")};
  all.push_back({{"name", "process_sort_index"},
                 {"ph", "M"},
                 {"pid", rank},
                 {"args", {{"sort_index", rank}}}});
  if (trace.dropped() > 0) {
    all.push_back({{"name", "process_labels"},
                   {"ph", "M"},
                   {"pid", rank},
                   {"args", {{"labels", cat(trace.dropped(), " earlier events were dropped")}}}});
  }
  Lanes lanes;
  for (const TraceEvent& event : events) {
    const bool communicates = event.category == TraceCategory::communication;
    all.push_back(event_json(event, rank, communicates ? lanes.place(event) : 0, zero));
  }
  for (int lane = 1; lane <= lanes.count(); ++lane) {
    all.push_back(name_event("thread_name", rank, lane, "communication"));
  }
  std::string text;
  for (const Json& json : all) text += (text.empty() ? "" : ",\n") + json.dump();
  return text;
}

// The file.

// Writes the texts to a file. Returns 0, or the errno of the failure.
int write_file(const std::string& path, const std::vector<std::string>& texts) {
  errno = 0;
  std::ofstream file(path);
  file << "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  for (size_t i = 0; i < texts.size(); ++i) file << (i == 0 ? "" : ",\n") << texts[i];
  file << "\n]}\n";
  file.close();
  if (file) return 0;
  return errno != 0 ? errno : EIO;
}

}  // namespace

void write_trace(Communicator& communicator, const Trace& trace, const std::string& path) {
  const int64_t zero = time_zero(communicator, trace.events());
  const std::vector<std::string> texts =
      gather_texts(communicator, lines(communicator, trace, zero));
  std::array<int32_t, 1> problem = {0};
  if (communicator.rank() == kRoot) problem[0] = write_file(path, texts);
  communicator.broadcast(std::span<int32_t>(problem), kRoot);
  if (problem[0] != 0) {
    throw_on_all(communicator,
                 system_error(cat("cannot write the trace ", path), problem[0],
                              {.where = communicator.describe(kRoot),
                               .remedy = "use a file in a directory with write permission"}));
  }
}

void write_own_trace(const Communicator& communicator, const Trace& trace,
                     const std::string& path) noexcept {
  try {
    std::filesystem::path own(path);
    own.replace_filename(
        cat(own.stem().string(), ".rank-", communicator.rank(), own.extension().string()));
    const int problem = write_file(own, {lines(communicator, trace, 0)});
    if (problem != 0) {
      log(LogLevel::warning, system_error(cat("cannot write the trace ", own), problem).what());
    }
  } catch (const std::exception& error) {
    log(LogLevel::warning, cat("cannot write the trace ", path, ": ", error.what()));
  }
}

}  // namespace tutti::training
