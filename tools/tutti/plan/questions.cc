// Implements tutti plan --days and --largest.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "tools/tutti/commands.h"
#include "tools/tutti/plan/faces.h"
#include "training/planner/search.h"

namespace tutti::tool {

namespace {

namespace planner = training::planner;

// Returns the best layout that fits, if any.
std::optional<planner::PlannedLayout> best_of(const PlanOptions& o, const planner::Job& job) {
  try {
    const planner::Plans plans = search(job, constraints_of(o), efficiencies_of(o), 1);
    if (plans.fitting > 0) return plans.layouts.front();
  } catch (const Error& error) {  // thrown if no layout is legal
    if (error.code() != ErrorCode::invalid_argument) throw;
  }
  return std::nullopt;
}

Json answer(const planner::Job& job, const planner::PlannedLayout& best) {
  return {{"gpus", job.cluster.ranks()},
          {"seq", job.sequence},
          {"global_batch", job.global_batch},
          {"layout", to_text(best.layout)},
          {"micro_batch", best.layout.micro_batch},
          {"step_s", best.time.total()},
          {"memory_bytes", best.memory.total()}};
}

void write(const PlanOptions& o, const Json& json) {
  if (!o.json.empty()) write_file(o.json, json.dump(2) + "\n");
}

// Returns the best layout on this many hosts if it finishes in time.
std::optional<planner::PlannedLayout> done_in_time(const PlanOptions& o, planner::Job& job,
                                                   int hosts) {
  job.cluster.hosts = hosts;
  if (hosts > 1 && job.cluster.between.GBps == 0) return std::nullopt;
  const auto best = best_of(o, job);
  return best && days_of(o, job, best->time.total()) <= *o.days ? best : std::nullopt;
}

// Returns the next larger number of the form m 2^k, where m is 4 to 7. Layouts divide such numbers
// of hosts well.
int next_round_number(int hosts) {
  int unit = 1;
  while (hosts >= 8 * unit) unit *= 2;
  return hosts / unit * unit + unit;
}

// Prints the smallest number of hosts that finish in time, with their best layout. A larger number
// may fail, because layouts may not divide it well. So after finding any number that suffices,
// tries all smaller ones that would suffice at the processors' peak rates.
int fewest_hosts(const PlanOptions& o, planner::Job job) {
  constexpr int kMostHosts = 16384;
  int hosts = 1;
  std::optional<planner::PlannedLayout> best;
  while (hosts <= kMostHosts && !(best = done_in_time(o, job, hosts))) {
    hosts = next_round_number(hosts);
  }
  if (!best) {
    throw Error(ErrorCode::unsupported,
                cat("training on ", o.tokens, " tokens does not finish in ", *o.days,
                    " days on any number of hosts"),
                {.cause = "the batch has too few sequences for more processors",
                 .remedy = "use a larger --global-batch or more days"});
  }
  const double peak_days = days_of(o, job, best->time.total()) * best->mfu * hosts;
  const int enough = hosts;
  hosts = std::max(1, static_cast<int>(std::ceil(peak_days / *o.days)));
  for (; hosts < enough; ++hosts) {
    if (const auto fewer = done_in_time(o, job, hosts)) {
      best = fewer;
      break;
    }
  }
  job.cluster.hosts = hosts;
  const double days = days_of(o, job, best->time.total());
  std::printf("%d hosts, %d %s: %.1f days, %.3f s a step, %s\n", job.cluster.hosts,
              job.cluster.ranks(), job.processor.name.c_str(), days, best->time.total(),
              to_text(best->layout).c_str());
  Json json = answer(job, *best);
  json["hosts"] = job.cluster.hosts;
  json["days"] = days;
  write(o, json);
  return 0;
}

int largest_micro_batch(const PlanOptions& o, const planner::Job& job) {
  PlanOptions fixed = o;
  std::optional<planner::PlannedLayout> largest;
  for (int64_t size = 1; size <= job.global_batch; ++size) {
    if (job.global_batch % size != 0) continue;
    fixed.constraints.micro_batch = size;
    if (const auto best = best_of(fixed, job)) largest = best;
  }
  if (!largest)
    throw Error(ErrorCode::unsupported, "not even one sequence fits in memory",
                {.remedy = "use a shorter --seq, more GPUs, or more --tp or --pp ranks"});
  std::printf("a micro-batch of %lld: %s, %.1f GiB, %.3f s a step\n",
              static_cast<long long>(largest->layout.micro_batch), to_text(largest->layout).c_str(),
              largest->memory.total() / planner::kGiB, largest->time.total());
  write(o, answer(job, *largest));
  return 0;
}

int longest_sequence(const PlanOptions& o, planner::Job job) {
  constexpr int64_t kLongest = int64_t{1} << 30;
  std::optional<planner::PlannedLayout> longest;
  planner::Job its = job;
  for (; job.sequence <= kLongest; job.sequence *= 2) {
    const auto best = best_of(o, job);
    if (!best) break;
    longest = best;
    its = job;
  }
  if (!longest) {
    throw Error(ErrorCode::unsupported, cat("not even ", job.sequence, " tokens fit"),
                {.remedy = "start with a shorter --seq"});
  }
  std::printf("%lld tokens: %s, %.1f GiB, %.3f s a step; twice as many do not fit\n",
              static_cast<long long>(its.sequence), to_text(longest->layout).c_str(),
              longest->memory.total() / planner::kGiB, longest->time.total());
  write(o, answer(its, *longest));
  return 0;
}

}  // namespace

int answer_question(const PlanOptions& o) {
  const planner::Job job = job_of(o);
  if (o.days) return fewest_hosts(o, job);
  return o.largest == "sequence" ? longest_sequence(o, job) : largest_micro_batch(o, job);
}

}  // namespace tutti::tool
