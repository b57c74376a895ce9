// Implements tutti simulate train --sync: compares synchronization methods by the time to a number
// of updates, on a network with slow ranks.
#include "training/simulate/sync.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "tools/tutti/commands.h"
#include "tools/tutti/simulate/setup.h"
#include "topology/layout.h"
#include "training/parallel/sync_options.h"

namespace tutti::tool {

namespace {

using training::SimulatedSync;
using training::SyncOptions;
using training::SyncWork;

constexpr int64_t kMostSyncSteps = 40'000'000;  // maximum number of steps over all ranks
constexpr size_t kMostTried = 4;

struct SyncRow {
  SyncOptions way;
  SimulatedSync played;
  double fastest_waits = 0;  // fraction of the time for which the fastest rank waits
  double slowest_waits = 0;

  double time_us() const { return played.network.time_us; }
};

struct AllReduceRow {
  const Algorithm* algorithm = nullptr;
  double us = 0;

  double time_us() const { return us; }
};

// Returns the methods. A number belongs to the method before it: "allreduce,diloco:50,4,2" has two
// methods.
std::vector<SyncOptions> ways_in(const std::vector<std::string>& parts) {
  std::vector<std::string> texts;
  for (const std::string& part : parts) {
    const bool is_number = !part.empty() && std::isdigit(static_cast<unsigned char>(part[0])) != 0;
    if (is_number && !texts.empty()) {
      texts.back() += cat(',', part);
    } else {
      texts.push_back(part);
    }
  }
  std::vector<SyncOptions> ways;
  for (const std::string& way : texts) set_way(ways.emplace_back(), way);
  return ways;
}

double only_time(const char* option, const std::vector<double>& us) {
  if (us.size() == 1) return us.front();
  refuse(cat(option, " with --sync has ", us.size(), " times"),
         "give one value, since each rank computes the whole model");
}

class SyncPlay {
 public:
  explicit SyncPlay(const SimulateOptions& options)
      : o_(options), ways_(ways_in(o_.sync)), on_(o_), places_(on_.network->places(on_.ranks)) {
    const double forward = only_time("--forward-us", o_.forward_us);
    const double backward = only_time("--backward-us", o_.backward_us);
    step_us_ = o_.micro_batches * (backward + (o_.recomputes ? 2 : 1) * forward);
    if (o_.gradient_bytes.empty() && on_.ranks > 1) {
      throw UsageError(
          "train requires --gradient-bytes, because data-parallel ranks send gradients");
    }
    work_.updates = o_.updates;
    work_.seed = o_.seed;
    work_.bytes =
        o_.gradient_bytes.empty() ? 0 : static_cast<double>(parse_bytes(o_.gradient_bytes));
    for (const double slowdown : on_.slowdowns) work_.step_us.push_back(slowdown * step_us_);
    work_.all_reduce = &quickest_all_reduce();
  }

  int run() {
    const SyncRow all_reduce = play(SyncOptions());
    all_reduce_us_ = all_reduce.time_us();
    for (const SyncOptions& way : ways_) {
      rows_.push_back(way.kind == training::SyncKind::allreduce ? all_reduce : play(way));
    }
    end_progress();
    print();
    write_json();
    return 0;
  }

 private:
  const Algorithm& quickest_all_reduce() {
    if (on_.ranks == 1 || work_.bytes == 0) {
      return *algorithms_for(Collective::all_reduce).front();
    }
    const Shape shape{.ranks = on_.ranks, .layout = Layout::of(places_)};
    const auto candidates = algorithms_to_play(o_, Collective::all_reduce, shape, work_.bytes,
                                               *on_.network, kMostTried);
    const auto rows = play_each<AllReduceRow>(
        o_, candidates, [&](const Algorithm& algorithm, double give_up) -> AllReduceRow {
          show_progress(cat("playing ", algorithm.name), -1);
          const Schedule schedule =
              make_schedule(algorithm, shape, {.most_steps = kMostSyncSteps, .alike = on_.alike});
          SimulationOptions options = on_.simulation;
          options.bytes = work_.bytes;
          options.give_up_us = give_up;
          return {&algorithm, simulate(schedule, *on_.network, options).time_us};
        });
    return *rows.front().algorithm;
  }

  SyncRow play(const SyncOptions& way) {
    work_.way = way;
    SimulationOptions options = on_.simulation;
    options.progress = [&](double part) { show_progress(cat("playing ", text_of(way)), part); };
    show_progress(cat("making ", text_of(way)), -1);
    SyncRow row{.way = way,
                .played = simulate_sync(work_, places_, *on_.network, options, kMostSyncSteps)};
    const auto workers = row.played.waiting.size();
    size_t fastest = 0, slowest = 0;
    for (size_t worker = 0; worker < workers; ++worker) {
      if (work_.step_us[worker] < work_.step_us[fastest]) fastest = worker;
      if (work_.step_us[worker] >= work_.step_us[slowest]) slowest = worker;
    }
    row.fastest_waits = row.played.waiting[fastest];
    row.slowest_waits = row.played.waiting[slowest];
    return row;
  }

  double to_all_reduce(const SyncRow& row) const {
    return all_reduce_us_ > 0 ? row.time_us() / all_reduce_us_ : 1;
  }
  double updates_per_second(const SyncRow& row) const {
    return row.time_us() > 0 ? 1e6 * static_cast<double>(o_.updates) / row.time_us() : 0;
  }

  void print() const {
    std::string slow;
    for (int rank = 0; rank < on_.ranks; ++rank) {
      const double slowdown = on_.slowdowns[static_cast<size_t>(rank)];
      if (slowdown != 1) slow += cat(", rank ", rank, " x", slowdown);
    }
    std::printf(
        "train on %s: %d data-parallel rank%s, %lld update%s, %g us a step%s, all-reduce by %s\n",
        o_.topology.c_str(), on_.ranks, on_.ranks == 1 ? "" : "s",
        static_cast<long long>(o_.updates), o_.updates == 1 ? "" : "s", step_us_, slow.c_str(),
        work_.all_reduce->name.c_str());
    std::printf("%-18s %16s %12s %12s %14s %14s %16s  %s\n", "way", "time us", "updates/s",
                "x allreduce", "fastest waits", "slowest waits", "bytes sent", "busiest link");
    for (const SyncRow& row : rows_) {
      std::printf("%-18s %16.2f %12.2f %12.3f %13.2f%% %13.2f%% %16.0f  %s\n",
                  text_of(row.way).c_str(), row.time_us(), updates_per_second(row),
                  to_all_reduce(row), 100 * row.fastest_waits, 100 * row.slowest_waits,
                  row.played.network.bytes_sent,
                  busiest_link(row.played.network, *on_.network).c_str());
    }
    std::printf(
        "x allreduce: time relative to allreduce; waits: fraction of the time in which the fastest "
        "and the\n"
        "slowest worker do not compute. Updates of different methods are not equally effective.\n");
  }

  Json to_json(const SyncRow& row) const {
    const SimulationResult& network = row.played.network;
    Json json = {{"sync", text_of(row.way)},
                 {"time_us", row.time_us()},
                 {"updates_per_second", updates_per_second(row)},
                 {"ratio_to_allreduce", to_all_reduce(row)},
                 {"fastest_waits", row.fastest_waits},
                 {"slowest_waits", row.slowest_waits},
                 {"bytes_sent", network.bytes_sent},
                 {"messages", network.messages}};
    json["worker_steps"] = Json::array();
    for (const int64_t steps : row.played.steps) json["worker_steps"].push_back(steps);
    json["worker_waits"] = Json::array();
    for (const double waits : row.played.waiting) json["worker_waits"].push_back(waits);
    add_busiest_link(network, *on_.network, json);
    return json;
  }

  // The first method's results are also at the top level.
  void write_json() const {
    const Json document = {{"topology", o_.topology},       {"ranks", on_.ranks},
                           {"updates", o_.updates},         {"step_us", step_us_},
                           {"gradient_bytes", work_.bytes}, {"algorithm", work_.all_reduce->name}};
    Json results = Json::array();
    for (const SyncRow& row : rows_) results.push_back(to_json(row));
    write_results(o_.json, document, results);
  }

  const SimulateOptions& o_;
  std::vector<SyncOptions> ways_;
  SimulatedNetwork on_;
  std::vector<Place> places_;
  double step_us_ = 0;  // step time of a rank without slowdown
  SyncWork work_;
  double all_reduce_us_ = 0;
  std::vector<SyncRow> rows_;
};

}  // namespace

int simulate_sync(const SimulateOptions& options) { return SyncPlay(options).run(); }

}  // namespace tutti::tool
