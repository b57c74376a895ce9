// tutti explain: shows the algorithm chosen for a call, the predicted time of each algorithm, and
// the reason for the choice.
#include "tools/tutti/explain.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/cuda/device.h"
#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "collectives/cost/gpu_costs.h"
#include "collectives/cost/planner.h"
#include "collectives/interchange/msccl_import.h"
#include "tools/tutti/clusters.h"
#include "tools/tutti/commands.h"
#include "tools/tutti/exclude.h"
#include "tools/tutti/groups.h"
#include "tools/tutti/named.h"
#include "tools/tutti/on_machine.h"
#include "topology/layout.h"

namespace tutti::tool {

namespace {

struct ExplainOptions {
  std::string collective;
  int ranks = 2;
  std::string group;  // ranks per host; empty: all ranks are on one host
  int root = 0;
  std::string bytes = "1M";
  std::string dtype = "f32";
  std::string transport = "auto";
  bool deterministic = false;
  std::string gpu;
  std::string cluster;
  std::string buffers = "user";
  std::string json;
  bool all_sizes = false;  // true for a GPU without --bytes
};

CallToPlan wanted_of(const ExplainOptions& options) {
  const Collective collective = collective_named(options.collective);
  const DType dtype = dtype_named(options.dtype);
  if (options.root < 0 || options.root >= options.ranks) {
    throw Error(ErrorCode::invalid_argument,
                cat("--root ", options.root, " is not one of the ", options.ranks, " ranks"),
                {.remedy = cat("use a rank from 0 to ", options.ranks - 1)});
  }
  return {.collective = collective,
          .root = options.root,
          .bytes = block_bytes(collective, options.ranks, parse_bytes(options.bytes)),
          .dtype = dtype,
          .at_least = grade_wanted(collective, options.deterministic)};
}

// Returns the bottleneck of a call as text: the network card of a host, a core, or latency.
std::string bound_of(const Prediction& p, const tutti::Hosts& hosts) {
  constexpr double kMost = 0.6;  // a part busy for this fraction of the time is the bottleneck
  const auto part = [&](double busy) {
    return cat("busy for ", std::lround(100 * busy / p.seconds), "% of the time");
  };
  if (hosts.count() > 1 && p.wire > kMost * p.seconds && p.wire >= p.cores) {
    return cat("what ", p.enters ? "enters" : "leaves", " host ", p.host,
               " by its network card, which is ", part(p.wire));
  }
  if (p.cores > kMost * p.seconds) return cat("a core, which is ", part(p.cores));
  return "latency: ranks mostly wait for messages";
}

// A call and its size in bytes, as in `tutti bench`.
struct Question {
  Collective collective;
  int ranks;
  uint64_t bytes;
  PredictionErrors errors;

  double busbw(double seconds) const {
    return busbw_GBps(collective, ranks, static_cast<double>(bytes), seconds);
  }
  Interval interval_us(double seconds) const {
    return errors.around(1e6 * seconds, static_cast<double>(bytes));
  }
};

void add_time(const Question& question, double seconds, Json& json) {
  const Interval interval = question.interval_us(seconds);
  json["time_us"] = seconds * 1e6;
  json["time_us_low"] = interval.low;
  json["time_us_high"] = interval.high;
  json["busbw_GBps"] = question.busbw(seconds);
}

Json to_json(const Candidate& candidate, const Question& question) {
  Json row = {{"algorithm", candidate.algorithm->name},
              {"grade", name(candidate.algorithm->grade)}};
  if (!candidate.excluded.empty()) {
    row["excluded"] = candidate.excluded;
    return row;
  }
  const Prediction& p = candidate.prediction;
  add_time(question, p.seconds, row);
  row["rough"] = p.rough;
  if (p.rough) return row;
  row["messages_us"] = p.messages * 1e6;
  row["bytes_us"] = p.moving * 1e6;
  row["reducing_us"] = p.reducing * 1e6;
  return row;
}

// Prints the estimate for a program that is too long for a prediction step by step.
void print_rough(const std::string& name, const std::string& grade, double seconds, double busbw,
                 bool chosen) {
  std::printf("%s %-26s %-10s %10.2f us  estimated from one rank's steps  busbw %.3f GB/s\n",
              chosen ? "  >" : "   ", name.c_str(), grade.c_str(), seconds * 1e6, busbw);
}

void print(const Candidate& candidate, const Question& question, bool chosen) {
  const Prediction& p = candidate.prediction;
  const std::string name(candidate.algorithm->name);
  const std::string grade(tutti::name(candidate.algorithm->grade));
  if (!candidate.excluded.empty()) {
    std::printf("    %-26s %-10s out: %s\n", name.c_str(), grade.c_str(),
                candidate.excluded.c_str());
    return;
  }
  const double bandwidth = question.busbw(p.seconds);
  if (p.rough) return print_rough(name, grade, p.seconds, bandwidth, chosen);
  const double busy = p.messages + p.moving + p.reducing;
  std::printf(
      "%s %-26s %-10s %10.2f us  = messages %8.2f  bytes %9.2f  reducing %9.2f  waiting %9.2f  "
      "busbw %.3f GB/s\n",
      chosen ? "  >" : "   ", name.c_str(), grade.c_str(), p.seconds * 1e6, p.messages * 1e6,
      p.moving * 1e6, p.reducing * 1e6, std::max(0.0, p.seconds - busy) * 1e6, bandwidth);
}

int run(const ExplainOptions& options) {
  open_for_appending(options.json, "--json");  // fails early, and keeps earlier results
  const CallToPlan wanted = wanted_of(options);
  OnMachine on({.ranks = options.ranks,
                .group = options.group,
                .transport = options.transport,
                .file = options.cluster});
  const Algorithm& chosen = on.planner.choose(wanted);
  const CostModel& model = on.planner.machine().model;
  const std::string groups = to_text(on.shape.layout);
  const Question question = {wanted.collective, options.ranks, parse_bytes(options.bytes),
                             model.errors};
  const std::string collective(name(wanted.collective));
  std::printf("%s of %s, %d ranks, %s on a host with %d cores%s, %s\n", collective.c_str(),
              options.bytes.c_str(), options.ranks,
              options.group.empty() ? std::to_string(options.ranks).c_str() : options.group.c_str(),
              model.cores, groups.empty() ? "" : cat(", in ", groups).c_str(),
              on.transport.c_str());
  std::printf("costs: %s\n\n", on.costs.c_str());
  Json document = {{"collective", collective},  {"ranks", options.ranks},
                   {"bytes", question.bytes},   {"dtype", name(wanted.dtype)},
                   {"transport", on.transport}, {"source", on.costs},
                   {"chosen", chosen.name},     {"algorithms", Json::array()}};
  Prediction its;
  for (const Candidate& candidate : on.planner.explain(wanted)) {
    const bool is_chosen = candidate.algorithm == &chosen;
    print(candidate, question, is_chosen);
    document["algorithms"].push_back(to_json(candidate, question));
    if (is_chosen) its = candidate.prediction;
  }
  add_time(question, its.seconds, document);
  const Interval interval = question.interval_us(its.seconds);
  std::printf(
      "\n"
      "The parts are those of the busiest rank; the rest of the time is waiting.\n");
  std::printf("%s: %.2f us, from %.2f to %.2f: %s.\n", chosen.name.c_str(), 1e6 * its.seconds,
              interval.low, interval.high, kIntervalMeaning);
  if (!its.rough) {
    std::printf("What bounds %s: %s.\n", chosen.name.c_str(), bound_of(its, on.hosts).c_str());
  }
  if (!options.json.empty()) write_file(options.json, document.dump(2) + "\n");
  return 0;
}

// Returns the powers of two from 8 bytes to 1 GiB.
std::vector<uint64_t> ladder() {
  std::vector<uint64_t> sizes;
  for (uint64_t bytes = 8; bytes <= uint64_t{1} << 30; bytes *= 2) sizes.push_back(bytes);
  return sizes;
}

tutti::Reach reach_of(const std::string& buffers) {
  if (buffers == "registered") return tutti::Reach::windows;
  return buffers == "library" ? tutti::Reach::multicast : tutti::Reach::slots;
}

// Returns the GPU class `named` or, for "auto", the class of this host's first GPU.
std::string class_of_gpu(const std::string& named) {
  return named == "auto" ? std::string(gpu_class_for(cuda::device_info(0).name)) : named;
}

int run_gpu(const ExplainOptions& options) {
  AlgorithmFiles files = load_algorithm_files();
  GpuQuestion question{.gpu = class_of_gpu(options.gpu),
                       .ranks = options.ranks,
                       .wanted = wanted_of(options),
                       .sizes = {parse_bytes(options.bytes)},
                       .more = std::move(files.algorithms),
                       .reach = reach_of(options.buffers),
                       .costs = options.cluster};
  if (options.all_sizes) question.sizes = ladder();
  if (question.wanted.collective == Collective::barrier) question.sizes = {0};
  return explain_gpu(question);
}

int run_cluster(const Command& command, const ExplainOptions& options) {
  exclude(command, "--cluster",
          {"--transport", "--group", "--gpu", "--buffers", "--root", "--dtype", "--deterministic"});
  const std::optional<int> ranks =
      command.count("--ranks") > 0 ? std::optional(options.ranks) : std::nullopt;
  return explain_on_cluster({.cluster = load_cluster(options.cluster, ranks),
                             .text = options.cluster,
                             .collective = collective_named(options.collective),
                             .bytes = {static_cast<double>(parse_bytes(options.bytes))},
                             .json = options.json});
}

}  // namespace

void add_explain(CommandLine& line) {
  const auto o = std::make_shared<ExplainOptions>();
  Command command = line.add(
      "explain", "show the predicted time of every algorithm for a call and which one is chosen");
  command.add_option("collective", o->collective, "collective: all_reduce, all_gather, ...")
      .required()
      .suggest(collective_names());
  command.add_option("-n,--ranks", o->ranks, "number of ranks").between(1, 1 << 20).show_default();
  command.add_option("--bytes", o->bytes, "size in bytes, as in `tutti bench`").show_default();
  command.add_option("--dtype", o->dtype, "element type").show_default().suggest(dtype_names());
  command
      .add_option("--transport", o->transport,
                  "transport, as in TUTTI_TRANSPORT; auto: between hosts, the fastest one that "
                  "`tutti tune` measured")
      .one_of(transport_names())
      .show_default();
  command.add_option("--group", o->group, kGroupHelp).type_name("N");
  command.add_option("--root", o->root, "root rank, for collectives that have one").show_default();
  command.add_flag("--deterministic", o->deterministic,
                   "use only deterministic (canonical) algorithms");
  command
      .add_option("--gpu", o->gpu,
                  "type of GPU: a100, h100, b200 (NVLink switch), mi300x (full mesh), pcie3 to "
                  "pcie5, or auto (this host's GPUs). Assumes one host with one GPU per rank. "
                  "Without --bytes, shows the choices for 8 bytes to 1 GiB")
      .type_name("CLASS");
  command
      .add_option(
          "--cluster", o->cluster,
          "predict NCCL's algorithms on a GPU cluster, given by name, description or file (see "
          "below), or use the costs in a file from `tutti tune` instead of this host's")
      .type_name("CLUSTER");
  command
      .add_option("--buffers", o->buffers,
                  "with --gpu: buffer memory, as in `tutti bench`: user, registered (windows), or "
                  "library (windows that the NVLink switch reduces)")
      .one_of({"user", "registered", "library"})
      .show_default();
  command.add_option("--json", o->json, "write the predicted times as JSON to this file")
      .type_name("FILE");
  command.footer(cat(kClusterHelp,
                     "\nExamples:\n  tutti explain all_reduce -n 16 --group 8 --bytes 4M\n"
                     "  tutti explain all_reduce -n 8 --gpu h100\n"
                     "  tutti explain all_gather --cluster p5:32 --bytes 32M"));
  command.runs([command, o] {
    if (!o->cluster.empty() && !is_cost_model(o->cluster)) return run_cluster(command, *o);
    if (o->gpu.empty() && command.count("--buffers") > 0) {
      throw UsageError("--buffers without --gpu");
    }
    if (o->gpu.empty()) return run(*o);
    exclude(command, "--gpu", {"--transport", "--group", "--json"});
    o->all_sizes = command.count("--bytes") == 0;
    return run_gpu(*o);
  });
}

}  // namespace tutti::tool
