#include "tools/tutti/pipeline/prove.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "training/pipeline/check.h"
#include "training/pipeline/plan.h"
#include "training/pipeline/schedules.h"

namespace tutti::tool {

namespace {

using namespace training::pipeline;

struct ProofTask {
  Shape shape;
  std::string problem;  // empty: proved
};

std::vector<ProofTask> tasks_for(const ScheduleKind& kind, const PipelineProofs& limits) {
  std::vector<ProofTask> tasks;
  const int most_virtual = kind.has_virtual_stages ? limits.max_virtual : 1;
  for (int p = 1; p <= limits.max_ranks; ++p) {
    for (int m = 1; m <= limits.max_micro_batches; ++m) {
      const int most_accumulated = kind.updates == Updates::flushed ? 1 : m;
      for (int v = 1; v <= most_virtual; ++v) {
        for (int accumulated = 1; accumulated <= most_accumulated; ++accumulated) {
          const Shape shape{p, m, v, accumulated};
          if (kind.why_not(shape).empty()) tasks.push_back({shape, {}});
        }
      }
    }
  }
  return tasks;
}

// Runs the independent proofs on all processors, large ones first.
void prove(const ScheduleKind& kind, std::vector<ProofTask>& tasks) {
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next.fetch_add(1); i < tasks.size(); i = next.fetch_add(1)) {
      ProofTask& task = tasks[tasks.size() - 1 - i];
      try {
        check(make_plan(make_schedule(kind, task.shape)));
      } catch (const Error& error) {
        task.problem = error.what();
      }
    }
  };
  std::vector<std::jthread> threads;
  for (unsigned i = 1; i < std::thread::hardware_concurrency(); ++i) threads.emplace_back(work);
  work();
}

std::string where(const ScheduleKind& kind, const Shape& shape) {
  return cat("-p ", shape.ranks, " -m ", shape.micro_batches,
             kind.has_virtual_stages ? cat(" -v ", shape.virtual_stages) : "",
             kind.updates == Updates::flushed ? "" : cat(" --accumulate ", shape.accumulated));
}

void refuse_below_one(const char* option, int value) {
  if (value >= 1) return;
  throw Error(ErrorCode::invalid_argument,
              cat(option, " is ", value, ", but it must be at least 1"),
              {.remedy = cat("use ", option, " 4, for example")});
}

}  // namespace

int prove_pipelines(const PipelineProofs& limits) {
  refuse_below_one("--max-ranks", limits.max_ranks);
  refuse_below_one("--max-micro-batches", limits.max_micro_batches);
  refuse_below_one("--max-virtual", limits.max_virtual);
  std::span<const ScheduleKind> kinds = all_schedules();
  if (!limits.schedule.empty()) kinds = std::span(&schedule_named(limits.schedule), 1);
  size_t proved = 0;
  bool good = true;
  for (const ScheduleKind& kind : kinds) {
    std::vector<ProofTask> tasks = tasks_for(kind, limits);
    prove(kind, tasks);
    const auto right = static_cast<size_t>(
        std::ranges::count_if(tasks, [](const ProofTask& task) { return task.problem.empty(); }));
    std::printf("%-15s %5zu shapes  %s\n", std::string(kind.name).c_str(), right,
                std::string(kind.what).c_str());
    for (const ProofTask& task : tasks) {
      if (task.problem.empty()) continue;
      std::printf("  %s: %s\n", where(kind, task.shape).c_str(), task.problem.c_str());
    }
    std::fflush(stdout);
    proved += right;
    good = good && right == tasks.size();
  }
  std::printf("%zu schedules proved\n", proved);
  return good ? 0 : 1;
}

}  // namespace tutti::tool
