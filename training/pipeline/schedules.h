// The pipeline schedules that there are. Each is made by one small file of its name.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "training/pipeline/schedule.h"

namespace tutti::training::pipeline {

// p ranks, m micro-batches, v chunks a rank; arguments to which why_not() below has no objection.
Schedule gpipe(int p, int m);
Schedule one_f_one_b(int p, int m);
Schedule interleaved(int p, int m, int v);
Schedule zero_bubble_h1(int p, int m);
Schedule zero_bubble_h2(int p, int m);
Schedule chimera(int p, int m);
// `accumulated` micro-batches an update; all m of them between two flushes.
Schedule pipedream(int p, int m, int accumulated);
Schedule pipedream_2bw(int p, int m, int accumulated);

// What is asked of a schedule.
struct Shape {
  int ranks = 1;
  int micro_batches = 1;
  int virtual_stages = 1;  // chunks a rank: 1 but for interleaved
  int accumulated = 1;     // of asynchronous schedules
  bool operator==(const Shape&) const = default;
};

struct ScheduleKind {
  std::string_view name;  // "1f1b"
  std::string_view what;  // a line for people, with the source
  Updates updates = Updates::flushed;
  bool has_virtual_stages = false;
  Schedule (*make)(const Shape& shape) = nullptr;
  // Empty, or why there is no such table ("Chimera needs an even number of ranks").
  std::string (*why_not)(const Shape& shape) = nullptr;
  // The least number of micro-batches of at least `micro_batches` that this kind has a table for;
  // the ones too many are left empty by the executor. Asked before why_not(), which may still
  // object to the rest of the shape, as long as all of it is positive.
  int (*round_up)(const Shape& shape) = nullptr;
};

// gpipe, 1f1b, interleaved, zb-h1, zb-h2, chimera, pipedream, pipedream-2bw.
std::span<const ScheduleKind> all_schedules();
// Throws Error(invalid_argument) that lists the names. Case and '_' or '-' do not matter; also
// known: "one_f_one_b", "pipedream-flush", "dapple", "interleaved-1f1b", "zero-bubble-h1" (and h2),
// "2bw".
const ScheduleKind& schedule_named(std::string_view name);
// make(), after a why_not() that is empty; throws Error(invalid_argument) else.
Schedule make_schedule(const ScheduleKind& kind, const Shape& shape);

}  // namespace tutti::training::pipeline
