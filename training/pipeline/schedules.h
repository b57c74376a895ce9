// The available pipeline schedules, each of which is defined in a file of its name.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "training/pipeline/schedule.h"

namespace tutti::training::pipeline {

// Return the schedule for p ranks, m micro-batches and v chunks per rank. ScheduleKind::why_not()
// must accept the arguments.
Schedule gpipe(int p, int m);
Schedule one_f_one_b(int p, int m);
Schedule interleaved(int p, int m, int v);
Schedule zero_bubble_h1(int p, int m);
Schedule zero_bubble_h2(int p, int m);
Schedule chimera(int p, int m);
// The two functions below update the weights after every `accumulated` micro-batches; all m
// micro-batches are between two flushes.
Schedule pipedream(int p, int m, int accumulated);
Schedule pipedream_2bw(int p, int m, int accumulated);

// The requested shape of a schedule.
struct Shape {
  int ranks = 1;
  int micro_batches = 1;
  int virtual_stages = 1;  // chunks per rank: 1 except for interleaved
  int accumulated = 1;     // micro-batches per update, for asynchronous schedules
  bool operator==(const Shape&) const = default;
};

struct ScheduleKind {
  std::string_view name;  // such as "1f1b"
  std::string_view what;  // description in one line, with the source
  Updates updates = Updates::flushed;
  bool has_virtual_stages = false;
  Schedule (*make)(const Shape& shape) = nullptr;
  // Returns an empty text, or the reason why there is no such schedule ("Chimera needs an even
  // number of ranks").
  std::string (*why_not)(const Shape& shape) = nullptr;
  // Returns the smallest supported number of micro-batches that is at least shape.micro_batches;
  // the caller adds micro-batches of weight 0. All numbers of the shape must be positive. Called
  // before why_not(), which may still reject the shape's other numbers.
  int (*round_up)(const Shape& shape) = nullptr;
};

// Returns all kinds: gpipe, 1f1b, interleaved, zb-h1, zb-h2, chimera, pipedream, pipedream-2bw.
std::span<const ScheduleKind> all_schedules();
// Returns the kind of that name. Throws Error(invalid_argument) that lists the names. Ignores case,
// '_' and '-'; also accepts "one_f_one_b", "pipedream-flush", "dapple", "interleaved-1f1b",
// "zero-bubble-h1" (and h2), "2bw".
const ScheduleKind& schedule_named(std::string_view name);
// Calls make() if why_not() is empty; otherwise throws Error(invalid_argument).
Schedule make_schedule(const ScheduleKind& kind, const Shape& shape);

}  // namespace tutti::training::pipeline
