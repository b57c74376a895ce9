#include "bindings/nccl_plugins/profiler.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>

#include "base/deadline.h"
#include "base/error.h"
#include "base/text.h"

namespace tutti::nccl {

namespace {

constexpr std::array<std::string_view, 7> kKinds = {
    "group API", "call API", "kernel launch", "group", "call", "proxy op", "proxy step"};
// The IDs of the displayed threads of an event kind begin at a multiple of this number.
constexpr int kThreadsOfKind = 1000;

int index_of(EventKind kind) { return static_cast<int>(kind); }

double microseconds(int64_t ns) { return static_cast<double>(ns) / 1000; }

// Assigns events of a kind to displayed threads, so that events on one thread do not overlap.
class Lanes {
 public:
  int place(int64_t start_ns, int64_t end_ns) {
    const auto free = std::ranges::find_if(ends_, [&](int64_t end) { return end <= start_ns; });
    const auto lane = std::distance(ends_.begin(), free);
    if (free == ends_.end()) ends_.emplace_back();
    ends_[static_cast<size_t>(lane)] = end_ns;
    return static_cast<int>(lane);
  }
  int count() const { return static_cast<int>(ends_.size()); }

 private:
  std::vector<int64_t> ends_;
};

Json name_event(const char* what, int rank, int thread, std::string_view name) {
  return {{"name", what}, {"ph", "M"}, {"pid", rank}, {"tid", thread}, {"args", {{"name", name}}}};
}

// Returns the time at which each event ended. NCCL marks a queued call as stopped while its proxy
// still works, so such an event lasts until the end of the last event inside it. An event that
// never stopped lasts until now.
std::vector<int64_t> ends_of(const std::deque<Event>& events,
                             const std::map<const void*, size_t>& places) {
  const int64_t now = now_ns();
  std::vector<int64_t> ends;
  ends.reserve(events.size());
  for (const Event& event : events) ends.push_back(event.end_ns != 0 ? event.end_ns : now);
  for (size_t i = events.size(); i-- > 0;) {
    const auto parent = places.find(events[i].parent);
    if (parent == places.end() || parent->second >= i) continue;
    ends[parent->second] = std::max(ends[parent->second], ends[i]);
  }
  return ends;
}

Json event_json(const Event& event, int64_t end_ns, int rank, int thread) {
  Json json{{"name", event.name},
            {"cat", kKinds.at(static_cast<size_t>(event.kind))},
            {"ph", "X"},
            {"pid", rank},
            {"tid", thread},
            {"ts", microseconds(event.start_ns)},
            {"dur", microseconds(end_ns - event.start_ns)}};
  Json arguments = Json::object();
  for (const auto& [name, value] : event.arguments) arguments[name] = value;
  for (const auto& [state, when] : event.states) {
    arguments["after_us"][state] = microseconds(when - event.start_ns);
  }
  if (event.end_ns == 0) arguments["unfinished"] = true;
  json["args"] = arguments;
  return json;
}

std::string file_of(const std::string& path, const std::string& communicator, int rank) {
  std::filesystem::path file(path);
  file.replace_filename(
      cat(file.stem().string(), ".comm-", communicator, ".rank-", rank, file.extension().string()));
  return file.string();
}

}  // namespace

Recording::Recording(std::string path, std::string communicator, int rank)
    : path_(std::move(path)), communicator_(std::move(communicator)), rank_(rank) {}

Event* Recording::start(Event event) {
  event.recording = this;
  event.start_ns = now_ns();
  const std::lock_guard lock(mutex_);
  if (events_.size() == kMost) {
    ++dropped_;
    return nullptr;
  }
  return &events_.emplace_back(std::move(event));
}

void Recording::stop(Event& event) {
  const std::lock_guard lock(event.recording->mutex_);
  event.end_ns = now_ns();
}

void Recording::enter(Event& event, const char* state, int64_t bytes) {
  const std::lock_guard lock(event.recording->mutex_);
  event.states.emplace_back(state, now_ns());
  if (bytes <= 0) return;
  const auto known = std::ranges::find(event.arguments, std::string_view("bytes"),
                                       &std::pair<const char*, Json>::first);
  if (known == event.arguments.end()) {
    event.arguments.emplace_back("bytes", bytes);
  } else {
    known->second = bytes;
  }
}

void Recording::set_rank(int rank) {
  const std::lock_guard lock(mutex_);
  if (rank_ < 0) rank_ = rank;
}

std::string Recording::write() {
  const std::lock_guard lock(mutex_);
  const int rank = std::max(rank_, 0);
  std::map<const void*, size_t> places;
  for (size_t i = 0; i < events_.size(); ++i) places.emplace(&events_[i], i);
  const std::vector<int64_t> ends = ends_of(events_, places);

  const std::string file_name = file_of(path_, communicator_, rank);
  errno = 0;
  std::ofstream file(file_name);
  file << "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n"
       << name_event("process_name", rank, 0, cat("rank ", rank, " of ", communicator_)).dump();
  if (dropped_ > 0) {
    file << ",\n"
         << Json{{"name", "process_labels"},
                 {"ph", "M"},
                 {"pid", rank},
                 {"args", {{"labels", cat(dropped_, " later events were dropped")}}}}
                .dump();
  }
  std::array<Lanes, kKinds.size()> lanes;
  for (size_t i = 0; i < events_.size(); ++i) {
    const int kind = index_of(events_[i].kind);
    const int lane = lanes.at(static_cast<size_t>(kind)).place(events_[i].start_ns, ends[i]);
    file << ",\n"
         << event_json(events_[i], ends[i], rank, kind * kThreadsOfKind + lane)
                .dump(-1, Json::BadText::replace);
  }
  for (size_t kind = 0; kind < lanes.size(); ++kind) {
    for (int lane = 0; lane < lanes[kind].count(); ++lane) {
      const int thread = static_cast<int>(kind) * kThreadsOfKind + lane;
      file << ",\n" << name_event("thread_name", rank, thread, kKinds[kind]).dump();
    }
  }
  file << "\n]}\n";
  file.close();
  if (file) return file_name;
  throw system_error(cat("cannot write the trace ", file_name), errno != 0 ? errno : EIO,
                     {.remedy = "set TUTTI_NCCL_PROFILE to a file in a writable directory"});
}

}  // namespace tutti::nccl
