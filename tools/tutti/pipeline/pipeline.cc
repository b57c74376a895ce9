// Implements tutti pipeline: shows, simulates and proves the schedules of pipeline parallelism.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "collectives/communicator.h"
#include "tools/launcher/launcher.h"
#include "tools/tutti/commands.h"
#include "tools/tutti/exclude.h"
#include "tools/tutti/pipeline/measure.h"
#include "tools/tutti/pipeline/prove.h"
#include "tools/tutti/pipeline/report.h"
#include "training/pipeline/schedules.h"
#include "training/pipeline/svg.h"
#include "training/pipeline/text.h"

namespace tutti::tool {

namespace {

using training::pipeline::all_schedules;
using training::pipeline::Costs;
using training::pipeline::ScheduleKind;
using training::pipeline::Updates;

constexpr size_t kTerminalColumns = 100;
constexpr int kMostForwards = 200'000;  // size of the largest table; larger ones take minutes

struct PipelineOptions {
  std::string schedule;
  // 0 means that the option was not given.
  training::pipeline::Shape shape{
      .ranks = 0, .micro_batches = 0, .virtual_stages = 0, .accumulated = 0};
  Costs costs;
  std::string svg;
  std::string json;
  bool table = false;
  bool list = false;
  bool prove = false;
  PipelineProofs proofs;
  bool measure = false;
  PipelineMeasuring measuring;
};

int list_schedules() {
  for (const ScheduleKind& kind : all_schedules()) {
    std::printf("%-15s %s\n", std::string(kind.name).c_str(), std::string(kind.what).c_str());
  }
  return 0;
}

// Returns the smallest number of micro-batches per update that the schedule supports, or 1 if the
// schedule does not support any.
int least_accumulated(const ScheduleKind& kind, training::pipeline::Shape shape) {
  for (shape.accumulated = 1; shape.accumulated <= shape.micro_batches; ++shape.accumulated) {
    if (kind.why_not(shape).empty()) return shape.accumulated;
  }
  return 1;
}

training::pipeline::Shape shape_for(const ScheduleKind& kind, const PipelineOptions& options) {
  training::pipeline::Shape shape = options.shape;
  const auto refuse = [](const std::string& what, const std::string& remedy) {
    throw Error(ErrorCode::invalid_argument, what, {.remedy = remedy});
  };
  if (shape.virtual_stages > 1 && !kind.has_virtual_stages) {
    refuse(cat(kind.name, " has one chunk per rank, not ", shape.virtual_stages),
           "remove -v, or use interleaved");
  }
  if (shape.accumulated > 0 && kind.updates == Updates::flushed) {
    refuse(cat(kind.name, " updates the weights once per step, after all micro-batches"),
           "remove --accumulate, or use pipedream or pipedream-2bw");
  }
  const double forwards =
      1.0 * shape.ranks * shape.micro_batches * std::max(1, shape.virtual_stages);
  if (forwards > kMostForwards) {
    refuse(cat("a table of ", shape.ranks, " ranks and ", shape.micro_batches,
               " micro-batches is too large to show"),
           cat("use at most ", kMostForwards, " forwards"));
  }
  if (shape.virtual_stages == 0) shape.virtual_stages = kind.has_virtual_stages ? 2 : 1;
  if (shape.accumulated == 0) shape.accumulated = least_accumulated(kind, shape);
  return shape;
}

bool fits_a_terminal(const std::string& text) {
  return std::ranges::all_of(
      split(text, '\n'), [](const std::string& line) { return line.size() <= kTerminalColumns; });
}

void show(const PipelineReport& report, const ScheduleKind& kind, const PipelineOptions& options,
          const std::optional<MeasuredPipeline>& measured) {
  const std::string title = title_of(report);
  if (!options.svg.empty()) {
    write_file(options.svg, to_svg(report.plan, report.timeline, title, subtitle_of(report)));
  }
  if (!options.json.empty()) {
    Json object = json_of(report);
    if (measured) object["measured"] = json_of(report, *measured);
    write_file(options.json, object.dump(1) + '\n');
  }
  std::printf("%s\n%s\n\n%s", title.c_str(), std::string(kind.what).c_str(),
              text_of(report).c_str());
  if (measured) std::printf("%s", text_of(report, *measured).c_str());
  const std::string table = to_text(report.plan, report.timeline);
  if (options.table || fits_a_terminal(table)) std::printf("\n%s", table.c_str());
}

Communicator join_ranks(int ranks) {
  Communicator world = Communicator::init();
  if (world.size() == ranks) return world;
  throw Error(ErrorCode::invalid_argument,
              cat("the pipeline has ", ranks, " ranks, but the launcher started ", world.size()),
              {.where = world.describe(world.rank()), .remedy = "start as many ranks"});
}

int show(const PipelineOptions& options) {
  const ScheduleKind& kind = training::pipeline::schedule_named(options.schedule);
  const PipelineReport report = report_on(kind, shape_for(kind, options), options.costs);
  if (!options.measure) {
    show(report, kind, options, std::nullopt);
    return 0;
  }
  const int ranks = report.plan.schedule.ranks;
  if (!is_launched() && ranks > 1) return launch_self({.ranks = ranks});
  Communicator world = join_ranks(ranks);
  const MeasuredPipeline measured = measure(world, report, options.costs, options.measuring);
  if (world.rank() == 0) show(report, kind, options, measured);
  return 0;
}

// Prints the table of bench/README.md.
int measure_all(const PipelineOptions& options) {
  constexpr int kRanks[] = {2, 4};
  constexpr int kMicroBatches[] = {4, 8, 16};
  std::vector<PipelineReport> reports;
  for (const ScheduleKind& kind : all_schedules()) {
    for (const int ranks : kRanks) {
      for (const int micro_batches : kMicroBatches) {
        PipelineOptions asked = options;
        asked.shape.ranks = ranks;
        asked.shape.micro_batches = micro_batches;
        reports.push_back(report_on(kind, shape_for(kind, asked), options.costs));
      }
    }
  }
  const int ranks = *std::ranges::max_element(kRanks);
  if (!is_launched()) return launch_self({.ranks = ranks});
  Communicator world = join_ranks(ranks);
  return measure_all(world, reports, options.costs, options.measuring) ? 0 : 1;
}

int run(const PipelineOptions& options) {
  if (options.list) return list_schedules();
  if (options.prove) return prove_pipelines(options.proofs);
  if (options.measure && options.schedule.empty()) return measure_all(options);
  return show(options);
}

void add_costs(Command command, Costs& costs) {
  const auto add = [&](const char* name, std::vector<double>& times, const char* what) {
    command.add_option(name, times, what)
        .type_name("T,..")
        .separated_by_commas()
        .group("Times in any common unit (one number, or one per chunk)")
        .show_default();
  };
  add("--forward", costs.forward, "forward time of a chunk (F)");
  add("--backward-input", costs.backward_input, "backward time for the input gradients (I)");
  add("--backward-weight", costs.backward_weight,
      "backward time for the weight gradients (W); a full backward (B) takes the sum of I and W");
  add("--message", costs.message, "time of a message between neighbouring chunks");
}

void add_limits(Command command, PipelineProofs& proofs) {
  const auto add = [&](const char* name, int& limit, const char* what) {
    command.add_option(name, limit, what).type_name("N").group("Limits of --prove").show_default();
  };
  add("--max-ranks", proofs.max_ranks, "prove schedules for at most this many ranks");
  add("--max-micro-batches", proofs.max_micro_batches,
      "prove schedules for at most this many micro-batches per step");
  add("--max-virtual", proofs.max_virtual,
      "prove schedules for at most this many model chunks per rank");
}

void add_measuring(Command command, PipelineOptions& options) {
  constexpr const char* kGroup = "Measuring";
  command
      .add_flag("--measure", options.measure,
                "run the schedule on real ranks, which sleep instead of computing, and compare the "
                "measured times with the simulated ones; without SCHEDULE: all schedules")
      .group(kGroup);
  command
      .add_option("--sleep", options.measuring.sleep_ms,
                  "how long ranks sleep, in milliseconds, for each unit of the times given below")
      .type_name("MS")
      .between(0.001, 1e6)
      .group(kGroup)
      .show_default();
  command
      .add_option("--steps", options.measuring.steps,
                  "number of measured steps; the median is reported")
      .type_name("N")
      .between(1, 1'000'000)
      .group(kGroup)
      .show_default();
}

void refuse_what_does_not_fit(const Command& command, const PipelineOptions& options) {
  for (const char* limit : {"--max-ranks", "--max-micro-batches", "--max-virtual"}) {
    if (!options.prove && command.count(limit) > 0)
      throw UsageError(cat(limit, " requires --prove"));
  }
  for (const char* detail : {"--sleep", "--steps"}) {
    if (!options.measure && command.count(detail) > 0) {
      throw UsageError(cat(detail, " requires --measure"));
    }
  }
  // --measure measures the time of a message, so --message cannot be given.
  if (options.measure && command.count("--message") > 0) {
    throw UsageError("--measure excludes --message");
  }
  const char* of_all = nullptr;  // option that applies to all schedules
  if (options.measure && options.schedule.empty()) of_all = "--measure without SCHEDULE";
  if (options.prove) of_all = "--prove";
  if (options.list) of_all = "--list";
  if (of_all == nullptr) {
    for (const char* needed : {"SCHEDULE", "--ranks", "--micro-batches"}) {
      if (command.count(needed) == 0) throw UsageError(cat(needed, " is required"));
    }
    return;
  }
  if (options.measure && (options.prove || options.list)) {
    throw UsageError(cat(of_all, " excludes --measure"));
  }
  exclude(
      command, of_all,
      {"--ranks", "--micro-batches", "--virtual", "--accumulate", "--svg", "--json", "--table"});
}

}  // namespace

void add_pipeline(CommandLine& line) {
  const auto options = std::make_shared<PipelineOptions>();
  Command command =
      line.add("pipeline", "show a pipeline schedule: its proof, memory, bubble and picture");
  command.add_option("SCHEDULE", options->schedule, "name of the schedule (see --list)")
      .type_name("");
  command.add_option("-p,--ranks", options->shape.ranks, "number of pipeline ranks").type_name("P");
  command
      .add_option("-m,--micro-batches", options->shape.micro_batches,
                  "number of micro-batches per step")
      .type_name("M");
  command
      .add_option("-v,--virtual", options->shape.virtual_stages,
                  "model chunks per rank, for interleaved (default: 2)")
      .between(1, 1 << 20)
      .type_name("V");
  command
      .add_option("--accumulate", options->shape.accumulated,
                  "micro-batches per weight update, for pipedream and pipedream-2bw (default: the "
                  "smallest possible)")
      .type_name("A");
  command.add_option("--svg", options->svg, "write a picture to this file").type_name("FILE");
  command.add_option("--json", options->json, "write all results as JSON").type_name("FILE");
  command.add_flag("--table", options->table,
                   "print the timetable even if it is wider than 100 columns");
  command.add_flag("--list", options->list, "print the names of all schedules");
  command.add_flag("--prove", options->prove,
                   "prove SCHEDULE, or all schedules, for every shape within the limits");
  add_measuring(command, *options);
  add_costs(command, options->costs);
  add_limits(command, options->proofs);
  command.footer(
      "Examples:\n"
      "  tutti pipeline 1f1b -p 4 -m 8 --svg 1f1b.svg\n"
      "  tutti pipeline interleaved -p 4 -m 8 -v 2 --message 0.1\n"
      "  tutti pipeline zb-h1 -p 4 -m 8 --measure\n"
      "  tutti pipeline --prove");
  command.runs([command, options] {
    refuse_what_does_not_fit(command, *options);
    options->proofs.schedule = options->schedule;
    return run(*options);
  });
}

}  // namespace tutti::tool
