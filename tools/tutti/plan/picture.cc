#include "tools/tutti/plan/picture.h"

#include <algorithm>
#include <array>
#include <sstream>
#include <utility>
#include <vector>

#include "base/svg.h"
#include "base/text.h"
#include "training/pipeline/check.h"
#include "training/pipeline/schedules.h"
#include "training/pipeline/svg.h"

namespace tutti::tool {

namespace {

namespace planner = training::planner;
namespace pipeline = training::pipeline;
using planner::MemoryUse;

struct MemoryKind {
  const char* name;
  double MemoryUse::*bytes;
};
constexpr std::array<MemoryKind, 6> kKinds = {{{"parameters", &MemoryUse::parameters},
                                               {"gradients", &MemoryUse::gradients},
                                               {"states", &MemoryUse::states},
                                               {"activations", &MemoryUse::activations},
                                               {"buffers", &MemoryUse::buffers},
                                               {"other", &MemoryUse::other}}};

std::string colour(size_t kind) {
  return svg::hsl(static_cast<double>(kind) / kKinds.size(), 0.45, 0.6);
}

// Draws a bar per stage, proportional to its memory.
pipeline::PicturePart memory_bars(const std::vector<MemoryUse>& stages) {
  constexpr double kLeft = 76;
  constexpr double kWidth = 560;
  constexpr double kRow = 30;
  std::ostringstream body;
  svg::text(body, 24, 20, 14, "start", "#222222", "Memory of a rank, by stage", true);
  double most = 0;
  for (const MemoryUse& use : stages) most = std::max(most, use.total());
  double at = 24;
  const auto rect = [&](double x, double y, double width, double height, size_t kind) {
    body << "<rect x=\"" << svg::fixed(x) << "\" y=\"" << svg::fixed(y) << "\" width=\""
         << svg::fixed(width) << "\" height=\"" << svg::fixed(height) << "\" fill=\""
         << colour(kind) << "\"/>\n";
  };
  for (size_t kind = 0; kind < kKinds.size(); ++kind) {
    rect(at, 32, 14, 14, kind);
    svg::text(body, at + 19, 44, 12, "start", "#222222", kKinds[kind].name);
    at += 100;
  }
  double y = 60;
  for (size_t stage = 0; stage < stages.size(); ++stage, y += kRow) {
    svg::text(body, kLeft - 10, y + 16, 13, "end", "#222222", cat("stage ", stage), true);
    double x = kLeft;
    for (size_t kind = 0; kind < kKinds.size(); ++kind) {
      const double width = kWidth * stages[stage].*kKinds[kind].bytes / most;
      if (width > 0) rect(x, y, width, 22, kind);
      x += width;
    }
    svg::text(body, x + 8, y + 16, 12, "start", "#777777",
              human_bytes(static_cast<uint64_t>(stages[stage].total())));
  }
  return {.height = y + 20, .body = body.str()};
}

}  // namespace

std::string picture_of(const planner::Job& job, const planner::PlannedLayout& planned,
                       double turns) {
  const planner::Layout& l = planned.layout;
  const planner::StepTime& time = planned.time;
  const double all = std::max(1.0, planner::micro_batches_of(job, l));
  constexpr int kMostEntries = 600;  // maximum number of entries of all stages
  const int usual = l.virtual_stages > 1 ? 2 : 4;
  const int each = std::clamp(kMostEntries / (l.stages * l.stages), 1, usual);
  const int shown = std::max(1, std::min(static_cast<int>(all), each * l.stages));
  const int whole = shown - shown % l.stages;  // the next lower number that interleaving supports
  const int micro_batches = l.virtual_stages > 1 ? std::max(whole, l.stages) : shown;
  const pipeline::ScheduleKind& kind =
      pipeline::schedule_named(l.virtual_stages > 1 ? "interleaved" : "1f1b");
  const pipeline::Plan plan = pipeline::make_plan(make_schedule(
      kind,
      {.ranks = l.stages, .micro_batches = micro_batches, .virtual_stages = l.virtual_stages}));
  check(plan);
  // Milliseconds that a micro-batch takes on a stage. Backward is 2/3 of them, or 3/4 with
  // recomputation.
  const double busy = 1e3 * (time.computing + time.tensor + time.context + time.dispatch) / turns /
                      all / l.virtual_stages;
  const double forward = busy / (l.recompute == planner::Recompute::full ? 4 : 3);
  const pipeline::Timeline timeline = simulate(
      plan, {.forward = {forward}, .backward_input = {busy - forward}, .backward_weight = {0}});
  const auto ms = [](double seconds) { return svg::fixed(1e3 * seconds); };
  std::vector<std::string> lines = {
      to_text(l), cat(ms(time.total()), " ms a step; after the passes ", ms(time.sums),
                      " ms of gradient sums, ", ms(time.update), " ms of optimizer")};
  if (turns > 1) {
    lines.push_back(cat("As if each rank had a processor; ", svg::fixed(turns),
                        " ranks take turns on each, and idle ones cost nothing."));
  }
  if (micro_batches < all) {
    lines.push_back(cat("The first ", micro_batches, " of ", static_cast<int64_t>(all),
                        " micro-batches; milliseconds."));
  }
  std::vector<MemoryUse> stages = planned.by_stage;
  if (stages.empty()) stages = memory_by_stage(job, l, planner::memory_rules(job.software));
  return to_svg(plan, timeline,
                cat(job.model.name, " on ", job.cluster.ranks(), " x ", job.processor.name), lines,
                memory_bars(stages));
}

}  // namespace tutti::tool
