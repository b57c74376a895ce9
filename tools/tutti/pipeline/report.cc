#include "tools/tutti/pipeline/report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "base/text.h"

namespace tutti::tool {

namespace {

using namespace training::pipeline;

// Formats a number with at most four decimals.
std::string number(double value) { return cat(std::round(value * 1e4) / 1e4); }

std::string percent(double ratio) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.2f%%", 100 * std::max(0.0, ratio));
  return text;
}

// Returns the mean computing time of a rank.
double work(const Timeline& timeline, int ranks) {
  double sum = 0;
  for (const Span& span : timeline.spans) sum += span.end - span.start;
  return sum / ranks;
}

// Simulates twice the micro-batches and subtracts the time of `once`. Returns nothing if the
// schedule has flushes or does not support twice the micro-batches.
std::optional<PipelineReport::Unflushed> without_flushes(const ScheduleKind& kind, Shape shape,
                                                         const Costs& costs, const Timeline& once) {
  shape.micro_batches *= 2;
  if (kind.updates == Updates::flushed || !kind.why_not(shape).empty()) return std::nullopt;
  const Timeline twice = simulate(make_plan(make_schedule(kind, shape)), costs);
  PipelineReport::Unflushed unflushed{.period = twice.makespan - once.makespan};
  unflushed.bubble = 1 - work(once, shape.ranks) / unflushed.period;
  return unflushed;
}

std::string counted(int count, const std::string& what) {
  return cat(count, ' ', what, count == 1 ? "" : "s");
}

// Returns a text: "4 3 2 1".
template <typename Values>
std::string listed(const Values& values) {
  std::string text;
  for (const auto& value : values) text += cat(text.empty() ? "" : " ", value);
  return text;
}

std::vector<int> of_ranks(const Bounds& bounds, int RankBounds::*member) {
  std::vector<int> values;
  for (const RankBounds& rank : bounds.ranks) values.push_back(rank.*member);
  return values;
}

std::string proof(const PipelineReport& report) {
  const Schedule& schedule = report.plan.schedule;
  std::string text =
      "proved: no deadlock, every micro-batch passes every chunk once in each direction,\n"
      "        gradients are added in ascending order";
  if (schedule.updates == Updates::flushed) return text + "\n";
  return cat(
      text,
      ", backward uses the weights of its forward,\n"
      "        which are updated after every ",
      schedule.accumulated == 1 ? "micro-batch" : cat(schedule.accumulated, " micro-batches"),
      '\n');
}

std::string table_of_ranks(const PipelineReport& report) {
  std::string text = "rank  activations  versions  receives  chunks\n";
  for (size_t i = 0; i < report.bounds.ranks.size(); ++i) {
    const RankBounds& rank = report.bounds.ranks[i];
    char line[64];
    std::snprintf(line, sizeof(line), "%4zu  %11d  %8d  %8d  ", i, rank.activations, rank.versions,
                  rank.received);
    text += line + listed(report.plan.ranks[i].chunks) + '\n';
  }
  return text +
         "(largest numbers held at a time: micro-batches' activations, weight versions, receives\n"
         " posted ahead)\n";
}

std::string bubble(double ratio, double total) {
  return cat("bubble ", percent(ratio), " (", number(ratio * total), " of ", number(total),
             " idle)");
}

std::string compared(const ClosedForm& form, const Timeline& timeline) {
  const double found = form.back_to_back ? timeline.steady_bubble : timeline.bubble;
  std::string text = cat("closed form          bubble ", form.formula,
                         form.formula == "0" ? "" : cat(" = ", percent(form.bubble)),
                         form.back_to_back ? " back to back" : "");
  if (!form.applies) return cat(text, " for: ", form.assumes, '\n');
  const double more = found - form.bubble;
  if (std::abs(more) < 1e-9) return cat(text, ": met\n");
  return cat(text, ": ", percent(std::abs(more)), more > 0 ? " above it" : " below it", '\n');
}

}  // namespace

PipelineReport report_on(const ScheduleKind& kind, const Shape& shape, const Costs& costs) {
  PipelineReport report{.plan = make_plan(make_schedule(kind, shape))};
  report.bounds = check(report.plan);
  report.timeline = simulate(report.plan, costs);
  report.closed_form = closed_form(kind, shape, costs);
  report.unflushed = without_flushes(kind, shape, costs, report.timeline);
  return report;
}

std::string title_of(const PipelineReport& report) {
  const Schedule& schedule = report.plan.schedule;
  std::string text = cat(schedule.name, ", ", counted(schedule.ranks, "rank"), ", ",
                         counted(schedule.micro_batches, "micro-batch"));
  if (schedule.micro_batches > 1) text.insert(text.size() - 1, "e");
  if (schedule.chunks > schedule.ranks) {
    text += cat(", ", schedule.chunks / schedule.ranks, " chunks per rank");
  }
  if (schedule.updates != Updates::flushed) text += cat(", ", schedule.accumulated, " per update");
  return text;
}

std::vector<std::string> subtitle_of(const PipelineReport& report) {
  const Timeline& timeline = report.timeline;
  std::vector<std::string> lines;
  lines.push_back(cat("makespan ", number(timeline.makespan), ", ",
                      bubble(timeline.bubble, timeline.makespan), "; back to back a step takes ",
                      number(timeline.period), ", bubble ", percent(timeline.steady_bubble)));
  if (report.unflushed) {
    lines.back() += cat("; without flushes ", number(report.unflushed->period), ", bubble ",
                        percent(report.unflushed->bubble));
  }
  lines.push_back(cat("activations held at a time, by rank: ",
                      listed(of_ranks(report.bounds, &RankBounds::activations))));
  if (report.plan.schedule.updates != Updates::flushed) {
    lines.push_back(cat("versions of the weights, by rank: ",
                        listed(of_ranks(report.bounds, &RankBounds::versions))));
  }
  return lines;
}

std::string text_of(const PipelineReport& report) {
  const Timeline& timeline = report.timeline;
  std::string text = cat(proof(report), '\n', table_of_ranks(report), '\n');
  text += cat("one step             makespan ", number(timeline.makespan), ", ",
              bubble(timeline.bubble, timeline.makespan), '\n');
  text += cat("steps back to back   period ", number(timeline.period), ", ",
              bubble(timeline.steady_bubble, timeline.period), '\n');
  if (report.unflushed) {
    text += cat("without flushes      period ", number(report.unflushed->period), ", ",
                bubble(report.unflushed->bubble, report.unflushed->period), '\n');
  }
  if (report.closed_form) text += compared(*report.closed_form, timeline);
  return text;
}

Json json_of(const PipelineReport& report) {
  const Schedule& schedule = report.plan.schedule;
  const Timeline& timeline = report.timeline;
  Json object = {
      {"schedule", schedule.name},
      {"ranks", schedule.ranks},
      {"micro_batches", schedule.micro_batches},
      {"virtual", std::max(1, schedule.chunks / schedule.ranks)},
      {"accumulated", schedule.accumulated},
      {"makespan", timeline.makespan},
      {"bubble", timeline.bubble},
      {"period", timeline.period},
      {"steady_bubble", timeline.steady_bubble},
      {"activations", of_ranks(report.bounds, &RankBounds::activations)},
      {"versions", of_ranks(report.bounds, &RankBounds::versions)},
      {"receives", of_ranks(report.bounds, &RankBounds::received)},
  };
  if (report.unflushed) {
    object["unflushed_period"] = report.unflushed->period;
    object["unflushed_bubble"] = report.unflushed->bubble;
  }
  if (report.closed_form && report.closed_form->applies) {
    object["closed_form"] = report.closed_form->bubble;
  }
  Json& spans = object["spans"] = Json::array();
  for (const Span& span : timeline.spans) {
    spans.push_back({{"rank", span.rank},
                     {"kind", name(span.entry.kind)},
                     {"micro_batch", span.entry.micro_batch},
                     {"chunk", span.entry.chunk},
                     {"start", span.start},
                     {"end", span.end}});
  }
  return object;
}

}  // namespace tutti::tool
