// This rank's activity: live counters for monitoring, and the report written when it fails.
#include <chrono>
#include <cmath>

#include "base/json.h"
#include "base/log.h"
#include "base/settings.h"
#include "base/text.h"
#include "collectives/runtime/communicator_impl.h"

namespace tutti::internal {

namespace {

// A wait for a message is reported once it is this long. A shorter one may be the end of a wait for
// a collective call.
constexpr int64_t kLeastWaitNs = 10'000'000;

std::string text_of(const CallRecord& record) {
  return cat("call ", record.call, ", ", to_string(record.signature));
}

Json recorded(const CallRecord& record, Ticks now) {
  const auto seconds = [](int64_t ns) { return static_cast<double>(ns) * 1e-9; };
  return {{"call", record.call},
          {"what", to_string(record.signature)},
          {"began_seconds_ago", seconds(nanoseconds_between(record.started, now))},
          {"seconds", record.finished ? Json(seconds(record.took_ns)) : Json()}};
}

}  // namespace

// Returns the statistics. Messages are not recorded, so a wait for one appears as "send/recv",
// without arguments.
Activity CommunicatorImpl::activity() {
  Activity activity{.calls = tally_.calls(),
                    .bytes = tally_.bytes(),
                    .waited_ns = wait_times_.waited_ns(),
                    .waits_for = waited_for()};
  if (const std::optional<CallRecord> record = recorder_.current()) {
    activity.current = text_of(*record);
    activity.current_ns = nanoseconds_between(record->started, ticks());
  } else if (const int64_t waiting = wait_times_.waiting_ns(); waiting > kLeastWaitNs) {
    activity.current = "send/recv";
    activity.current_ns = waiting;
  }
  for (int peer = 0; peer < size(); ++peer) {
    const uint64_t bytes = tally_.received(peer);
    if (bytes > 0) activity.received[members_[static_cast<size_t>(peer)]] = bytes;
  }
  return activity;
}

// Returns the ranks of the job that this rank waits for.
std::vector<int> CommunicatorImpl::waited_for() {
  std::vector<int> ranks;
  for (const int peer : stall_.waits_for()) {
    if (peer >= 0 && peer < size()) ranks.push_back(members_[static_cast<size_t>(peer)]);
  }
  return ranks;
}

// Counts a collective call in which this rank waited long. All other ranks wait for the same late
// rank, so only the first of these ranks logs a warning.
void CommunicatorImpl::note_lateness(const Operation& operation, int64_t waited_ns) {
  const uint32_t call = operation.number;
  if (operation.point_to_point() || stall_.knows_late(call)) return;
  const int culprit = explain_missing(operation).culprit;
  if (culprit < 0) return;
  const int first = members_.front() == culprit ? 1 : 0;
  const std::optional<uint32_t> calls = stall_.note_late(call, culprit);
  if (!calls || rank_ != first) return;
  log(LogLevel::warning,
      cat(engine_->control().describe(culprit),
          " is a straggler: the other ranks have waited for it in ", *calls,
          " consecutive calls, for ", std::round(static_cast<double>(waited_ns) * 1e-6) / 1e3,
          " s so far in call ", call, ", ", to_string(operation.compiled->signature),
          "; `tutti top` shows which ranks wait for which, and TUTTI_LATE_WARNING sets the limit "
          "in seconds"));
}

// Starts to write the report (if TUTTI_REPORT is set), and does not block, because the caller may
// be the control thread.
void CommunicatorImpl::write_report(const Error& error) {
  const std::string directory = settings().get_string("TUTTI_REPORT");
  if (directory.empty()) return;
  const Activity now = activity();
  const Ticks moment = ticks();
  const PeerInfo& self = engine_->control().peer(members_[static_cast<size_t>(rank_)]);
  Json calls = Json::array();
  for (const CallRecord& record : recorder_.records()) calls.push_back(recorded(record, moment));
  const std::string& job = engine_->control().job_name();
  const Json report = {
      {"job", job},
      {"rank", members_[static_cast<size_t>(rank_)]},
      {"host", self.host},
      {"pid", self.pid},
      {"communicator", cat(id_)},
      {"members", members_},
      {"error", {{"code", name(error.code())}, {"text", error.what()}, {"rank", error.rank()}}},
      {"calls", now.calls},
      {"bytes", now.bytes},
      {"waited_seconds", static_cast<double>(now.waited_ns) * 1e-9},
      {"current", now.current.empty() ? Json() : Json(now.current)},
      {"current_seconds", static_cast<double>(now.current_ns) * 1e-9},
      {"waits_for", now.waits_for},
      {"recorder", std::move(calls)}};
  const std::string path = cat(directory, "/rank-", members_[static_cast<size_t>(rank_)],
                               "-communicator-", id_, "-job-", job, ".json");
  report_file_.write(path, report.dump(2, Json::BadText::replace) + '\n');
}

}  // namespace tutti::internal
