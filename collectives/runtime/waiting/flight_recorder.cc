#include "collectives/runtime/waiting/flight_recorder.h"

#include <algorithm>

#include "base/text.h"

namespace tutti {

namespace {

// Returns the number before `call`. Numbers wrap from 2^32 - 1 to 1; 0 means no call.
uint32_t before(uint32_t call) { return call == 1 ? UINT32_MAX : call - 1; }

}  // namespace

void FlightRecorder::started(uint32_t call, const std::array<uint64_t, 2>& words, Ticks now) {
  Entry& entry = entries_[call % kCalls];
  const uint32_t version = entry.version.load(std::memory_order_relaxed);
  entry.version.store(version + 1, std::memory_order_release);
  entry.call.store(call, std::memory_order_release);
  entry.signature[0].store(words[0], std::memory_order_release);
  entry.signature[1].store(words[1], std::memory_order_release);
  entry.started.store(now, std::memory_order_release);
  entry.finished.store(0, std::memory_order_release);
  entry.version.store(version + 2, std::memory_order_release);
  last_started_.store(call, std::memory_order_release);
}

void FlightRecorder::finished(uint32_t call, Ticks now) {
  Entry& entry = entries_[call % kCalls];
  if (entry.call.load(std::memory_order_relaxed) == call) {
    entry.finished.store(now, std::memory_order_release);
  }
}

std::optional<CallRecord> FlightRecorder::find(uint32_t call) const {
  const Entry& entry = entries_[call % kCalls];
  while (true) {
    const uint32_t version = entry.version.load(std::memory_order_acquire);
    CallRecord record{.call = entry.call.load(std::memory_order_acquire),
                      .signature = decode({entry.signature[0].load(std::memory_order_acquire),
                                           entry.signature[1].load(std::memory_order_acquire)})};
    const Ticks started = entry.started.load(std::memory_order_acquire);
    const Ticks finished = entry.finished.load(std::memory_order_acquire);
    if (version % 2 != 0 || entry.version.load(std::memory_order_acquire) != version) continue;
    if (record.call != call || started == 0) return std::nullopt;
    record.started = started;
    record.finished = finished != 0;
    if (record.finished) record.took_ns = nanoseconds_between(started, finished);
    return record;
  }
}

std::vector<CallRecord> FlightRecorder::records() const {
  std::vector<CallRecord> records;
  uint32_t call = last_started();
  for (size_t back = 0; back < kCalls && call != 0; ++back, call = before(call)) {
    if (const std::optional<CallRecord> record = find(call)) records.push_back(*record);
  }
  std::ranges::reverse(records);
  return records;
}

// Searches backwards up to a finished call, because calls complete in the order in which they were
// made.
std::optional<CallRecord> FlightRecorder::current() const {
  std::optional<CallRecord> oldest;
  uint32_t call = last_started();
  for (size_t back = 0; back < kCalls && call != 0; ++back, call = before(call)) {
    const std::optional<CallRecord> record = find(call);
    if (!record || record->finished) break;
    oldest = record;
  }
  return oldest;
}

std::string FlightRecorder::history(size_t count) const {
  std::string text;
  const std::vector<CallRecord> all = records();
  const auto shown = std::min(count, all.size());
  for (auto record = all.end() - static_cast<ptrdiff_t>(shown); record != all.end(); ++record) {
    text += cat("\n  call ", record->call, ": ", to_string(record->signature));
    if (record->finished) {
      text += record->took_ns == 0 ? std::string(", took less than 1 us")
                                   : cat(", took ", record->took_ns / 1000, " us");
    } else {
      text += ", not finished";
    }
  }
  return text;
}

}  // namespace tutti
