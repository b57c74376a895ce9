// Implements tutti simulate of a collective on a network, and declares the command's options except
// those of training steps (train_options.cc).
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "collectives/cost/cost_model.h"
#include "collectives/program/bus_factor.h"
#include "collectives/simulate/candidates.h"
#include "collectives/simulate/schedule.h"
#include "tools/tutti/clusters.h"
#include "tools/tutti/commands.h"
#include "tools/tutti/exclude.h"
#include "tools/tutti/named.h"
#include "tools/tutti/on_machine.h"
#include "tools/tutti/simulate/setup.h"
#include "topology/layout.h"

namespace tutti::tool {

namespace {

constexpr int kSlicesOfGpus = 8;
constexpr int64_t kMostStepsInSlices = 400'000'000;
constexpr int64_t kMostWorkTried = 20'000'000;
constexpr int kFewRanks = 128;

struct Row {
  const Algorithm* algorithm = nullptr;
  double bytes = 0;
  SimulationResult result;
  int32_t alike = 1;
  bool in_rounds = false;  // true if only one round was simulated, because all rounds are alike
  bool is_best = false;    // true for the best result of this size
  double algbw = 0;
  double busbw = 0;

  double time_us() const { return result.time_us; }
};

std::vector<double> sizes_in(const SimulateOptions& options, Collective collective) {
  std::vector<double> sizes;
  for (const std::string& text : options.bytes) {
    const uint64_t bytes = collective == Collective::barrier ? 0 : parse_bytes(text);
    sizes.push_back(static_cast<double>(bytes));
  }
  return sizes;
}

class Play {
 public:
  explicit Play(const SimulateOptions& options)
      : o_(options),
        collective_(collective_named(o_.what)),
        sizes_(sizes_in(o_, collective_)),
        on_(o_) {
    if (o_.root < 0 || o_.root >= on_.ranks) {
      refuse(cat("--root ", o_.root, " is not a rank from 0 to ", on_.ranks - 1),
             "use one of the ranks");
    }
    shape_ = {
        .ranks = on_.ranks, .root = o_.root, .layout = Layout::of(on_.network->places(on_.ranks))};
  }

  int run() {
    for (const double bytes : sizes_) run(bytes);
    end_progress();
    print();
    write_json();
    return 0;
  }

 private:
  size_t most_tried() const {
    if (on_.ranks <= kFewRanks) return std::numeric_limits<size_t>::max();
    return on_.ranks <= kManyRanks ? 4 : 1;
  }

  void run(double bytes) {
    std::vector<Row> rows = play_each<Row>(
        o_, algorithms_to_play(o_, collective_, shape_, bytes, *on_.network, most_tried()),
        [&](const Algorithm& algorithm, double give_up) {
          return play(algorithm, bytes, give_up);
        });
    rows[0].is_best = true;
    rows_.insert(rows_.end(), rows.begin(), rows.end());
  }

  Row play(const Algorithm& algorithm, double bytes, double give_up) {
    Row row;
    row.algorithm = &algorithm;
    row.bytes = bytes;
    if (const auto rounds = rounds_in_place_of(o_, algorithm, shape_, bytes, *on_.network)) {
      row.in_rounds = true;
      row.result = play_rounds(*rounds, *on_.network, on_.ranks);
    } else {
      play(row, give_up);
    }
    if (row.result.time_us > 0) row.algbw = bytes / row.result.time_us * 1e-3;
    row.busbw = row.algbw * bus_factor(collective_, on_.ranks);
    return row;
  }

  void play(Row& row, double give_up) {
    const Algorithm& algorithm = *row.algorithm;
    const Schedule& schedule = schedule_of(algorithm);
    if (int64_t{schedule.steps()} * o_.slices > kMostStepsInSlices) {
      refuse(cat(algorithm.name, " has ", schedule.steps(), " steps, more than the limit of ",
                 o_.slices, " slices"),
             "use fewer --slices or fewer ranks");
    }
    SimulationOptions options = on_.simulation;
    options.bytes = row.bytes;
    options.give_up_us = give_up;
    if (o_.algorithm == "auto") options.most_work = kMostWorkTried;
    options.progress = [&](double part) { show_progress(cat("playing ", algorithm.name), part); };
    row.alike = schedule.alike;
    row.result = simulate(schedule, *on_.network, options);
  }

  // The schedule is kept for the next size if only one algorithm is used.
  const Schedule& schedule_of(const Algorithm& algorithm) {
    if (made_for_ == &algorithm) return schedule_;
    ScheduleOptions options{.most_steps = kMostSteps, .alike = on_.alike};
    options.progress = [&](double part) { show_progress(cat("making ", algorithm.name), part); };
    made_for_ = nullptr;
    schedule_ = make_schedule(algorithm, shape_, options);
    made_for_ = &algorithm;
    return schedule_;
  }

  void print() const {
    const std::string groups = to_text(shape_.layout);
    std::printf("%s on %s: %d ranks%s, %zu links\n", o_.what.c_str(), o_.topology.c_str(),
                on_.ranks, groups.empty() ? "" : cat(", in ", groups).c_str(),
                on_.network->graph().links().size());
    std::printf("%14s  %-28s %14s %12s %12s %12s  %s\n", "bytes", "algorithm", "time us",
                "algbw GB/s", "busbw GB/s", "messages", "busiest link");
    for (const Row& row : rows_) {
      const SimulationResult& result = row.result;
      const std::string busiest = busiest_link(result, *on_.network);
      std::printf("%14.0f %c%-28s %14.2f %12.3f %12.3f %12lld  %s\n", row.bytes,
                  row.is_best && o_.algorithm == "all" ? '>' : ' ', row.algorithm->name.c_str(),
                  result.time_us, row.algbw, row.busbw, static_cast<long long>(result.messages),
                  busiest.c_str());
    }
    if (std::ranges::any_of(rows_, &Row::in_rounds)) {
      std::printf("Rings and all-to-alls that are too long were simulated for one round.\n");
    }
    const bool as_one = std::ranges::any_of(rows_, [](const Row& row) { return row.alike > 1; });
    if (!as_one) return;
    std::printf(
        "The ranks of a host behave alike and were simulated as one (use --every-rank to simulate "
        "each).\n");
  }

  Json to_json(const Row& row) const {
    const SimulationResult& result = row.result;
    Json json = {{"bytes", static_cast<uint64_t>(row.bytes)},
                 {"algorithm", row.algorithm->name},
                 {"time_us", result.time_us},
                 {"algbw_GBps", row.algbw},
                 {"busbw_GBps", row.busbw},
                 {"messages", result.messages},
                 {"bytes_sent", result.bytes_sent},
                 {"first_rank_us", result.first_us},
                 {"last_rank", result.last_rank},
                 {"ranks_as_one", row.alike},
                 {"best", row.is_best}};
    add_busiest_link(result, *on_.network, json);
    return json;
  }

  // The first size's results are also at the top level.
  void write_json() const {
    Json results = Json::array();
    for (const Row& row : rows_) results.push_back(to_json(row));
    write_results(o_.json,
                  {{"collective", o_.what}, {"topology", o_.topology}, {"ranks", on_.ranks}},
                  results);
  }

  const SimulateOptions& o_;
  Collective collective_;
  std::vector<double> sizes_;
  SimulatedNetwork on_;
  Shape shape_;
  Schedule schedule_;
  const Algorithm* made_for_ = nullptr;
  std::vector<Row> rows_;
};

constexpr char kFooter[] =
    "Networks on which Tutti's programs are simulated: a file (ASTRA-sim's analytical .yml, "
    "htsim's\n"
    ".topo, ns-3's topology.txt, Slurm's topology.conf) or a description, innermost dimension "
    "first:\n"
    "  switch:8  ring:8  full:8  mesh:4x4  torus:4x4x4  dragonfly:groups=9,routers=4,hosts=2\n"
    "  switch:8,bandwidth=400GB/s,latency=250ns;ring:4,bandwidth=400Gbps,latency=1us\n"
    "  fat-tree:k=16  fat-tree:hosts=12500,per-leaf=32,gpus=8  rail:hosts=32,gpus=8\n"
    "Bandwidths (default unit GB/s) and latencies (default unit us) are those of one link.\n"
    "\n"
    "Examples:\n"
    "  tutti simulate all_reduce --cluster p5:32 --bytes 1M,64M,1G\n"
    "  tutti simulate all_gather --cluster '8xH100 x 128, NVLink 450, IB 8x50'\n"
    "  tutti simulate all_reduce --topology switch:8 --bytes 1M,64M --algorithm all\n"
    "  tutti simulate all_reduce --topology fat-tree:hosts=12500,gpus=8 --algorithm hierarchical\n"
    "  tutti simulate all_reduce -n 8 --gpu h100 --straggler 3:50\n"
    "  tutti simulate all_gather --topology torus:4x4 --slow host0-host1:10 --straggler 3:50\n"
    "  tutti simulate all_reduce --topology fat-tree:hosts=64 --fail leaf0-spine3 --jitter 5 "
    "--seed 1\n"
    "  tutti simulate train --topology fat-tree:hosts=128,gpus=8 --pp 8 --micro-batches 32 \\\n"
    "    --forward-us 4000 --backward-us 8000 --activation-bytes 16M --gradient-bytes 500M\n"
    "  tutti simulate train --topology fat-tree:hosts=8,gpus=8 --sync "
    "allreduce,ssp:3,async,local:16 \\\n"
    "    --forward-us 4000 --backward-us 8000 --gradient-bytes 100M --straggler 3:x4";

void refuse_what_does_not_fit(const Command& command, const SimulateOptions& o) {
  const bool train = o.what == kTrain;
  if (command.count("--cluster") + command.count("--gpu") != 1) {
    throw UsageError(command.count("--gpu") > 0 ? "--gpu excludes --cluster and --topology"
                                                : "--cluster or --topology is required");
  }
  if (train) {
    exclude(command, kTrain, {"--bytes", "--root", "--slices", "--overhead", "--reduce-bandwidth"});
  }
  check_train_options(command, o);
}

// Returns true if programs must be simulated, because there are faults or an explicit network.
bool is_played(const Command& command, const SimulateOptions& o) {
  constexpr std::array kOfPlays = {"--fail",   "--slow",     "--straggler",        "--jitter",
                                   "--slices", "--overhead", "--reduce-bandwidth", "--every-rank"};
  return o.what == kTrain || std::ranges::any_of(kOfPlays, [&](const char* option) {
           return command.count(option) > 0;
         });
}

int predict_on_machine(const Command& command, const SimulateOptions& o) {
  if (is_played(command, o) || !o.tries_several() || command.count("--root") > 0) {
    throw UsageError(cat(
        o.topology,
        " is a file of `tutti tune`, for which only --ranks, --bytes and --json are supported"));
  }
  const Collective collective = collective_named(o.what);
  return simulate_on_machine({.machine = {.ranks = o.ranks.value_or(2), .file = o.topology},
                              .collective = collective,
                              .bytes = sizes_in(o, collective),
                              .json = o.json});
}

int predict_on_cluster(const SimulateOptions& o) {
  ClusterQuestion question;
  question.cluster = load_cluster(o.topology, o.ranks);
  question.text = o.topology;
  question.collective = collective_named(o.what);
  question.bytes = sizes_in(o, question.collective);
  question.json = o.json;
  return simulate_on_cluster(question);
}

}  // namespace

void add_simulate(CommandLine& line) {
  const auto o = std::make_shared<SimulateOptions>();
  Command command = line.add("simulate", "simulate a collective or a training step on a network");
  command
      .add_option("what", o->what,
                  "what to simulate: a collective (all_reduce, all_gather, ...) or train")
      .required()
      .suggest([] {
        std::vector<std::string> names = collective_names();
        names.emplace_back("train");
        return names;
      }());
  command.add_option("--cluster,--topology", o->topology,
                     "GPU cluster or network, given by name, description or file (see below)");
  command
      .add_option(
          "--gpu", o->gpu,
          "simulate kernels on the GPUs of one host instead of a network; type of GPU, as in "
          "`tutti explain --gpu`")
      .type_name("CLASS");
  command
      .add_option("-n,--ranks", o->ranks,
                  "number of ranks (default: the number of ranks that the network connects)")
      .between(1, 1 << 20);
  command.add_option("--bytes", o->bytes, "sizes in bytes, as in `tutti bench`: 1K,1M,64M")
      .separated_by_commas()
      .show_default();
  command
      .add_option("--algorithm", o->algorithm,
                  "algorithm: a name, hierarchical(A,B,C), FILE.xml, FILE.json, rings (those that "
                  "`tutti topo` finds on the network), auto (the fastest) or all")
      .show_default();
  command.add_option("--root", o->root, "root rank, for collectives that have one").show_default();
  command
      .add_option("--slices", o->slices,
                  "number of pieces into which each chunk is split for pipelining")
      .between(1, 65536)
      .show_default();
  command
      .add_option("--fail", o->fail,
                  "simulate the failure of a link (leaf0-spine1, link7), of a node and all its "
                  "links (spine1), or of a rank (3); may be repeated")
      .type_name("LINK|RANK")
      .one_each_time();
  command
      .add_option("--slow", o->slow,
                  "slow down a link, or all links of a node, by a factor; may be repeated")
      .type_name("LINK:FACTOR")
      .one_each_time();
  command
      .add_option(
          "--straggler", o->stragglers,
          "delay the start of a rank by US microseconds; with --sync also RANK:xF: the rank "
          "takes F times as long to compute; may be repeated")
      .type_name("RANK:US")
      .one_each_time();
  command
      .add_option("--jitter", o->jitter,
                  "largest random variation of a message's time, in percent (default: 0)")
      .between(0, 100);
  command.add_option("--seed", o->seed, "seed of the jitter and of the random peers of --sync")
      .show_default();
  command
      .add_option("--overhead", o->overhead_us, "processor time per message sent, in microseconds")
      .show_default();
  command.add_option("--reduce-bandwidth", o->reduce_bandwidth,
                     "bandwidth of reductions and copies in GB/s (default: they take no time)");
  command.add_flag("--every-rank", o->every_rank,
                   "simulate every rank separately, even if ranks behave identically");
  command.add_option("--json", o->json, "write the results as JSON to this file").type_name("FILE");
  add_train_options(command, *o);
  command.footer(cat(kClusterHelp, '\n', kFooter));
  command.runs([command, o] {
    refuse_what_does_not_fit(command, *o);
    const bool plays = is_played(command, *o);
    if (!o->gpu.empty() && !plays) {
      const Collective collective = collective_named(o->what);
      return simulate_on_gpus(*o, collective, sizes_in(*o, collective));
    }
    if (!o->gpu.empty()) {
      if (command.count("--slices") == 0) o->slices = kSlicesOfGpus;
      take_gpu_class(*o);
    } else if (is_cost_model(o->topology)) {
      return predict_on_machine(command, *o);
    } else if (is_cluster(o->topology)) {
      if (!plays && o->tries_several() && command.count("--root") == 0) {
        return predict_on_cluster(*o);
      }
      o->topology = network_of(load_cluster(o->topology, o->ranks));
    }
    if (o->what != kTrain) return Play(*o).run();
    return o->sync.empty() ? simulate_train(*o) : simulate_sync(*o);
  });
}

}  // namespace tutti::tool
