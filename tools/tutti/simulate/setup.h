// Setup that the faces of `tutti simulate` share: collectives (simulate.cc), training steps
// (train.cc), and ways in which data-parallel ranks keep together (sync.cc).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "collectives/simulate/rounds.h"
#include "collectives/simulate/simulate.h"
#include "topology/networks/network.h"
#include "training/setup/command_line.h"

namespace tutti::tool {

inline constexpr char kTrain[] = "train";

struct SimulateOptions {
  std::string what;  // a collective, or kTrain
  std::string topology;
  std::string gpu;  // a class, in place of a topology
  std::optional<int> ranks;
  std::vector<std::string> bytes = {"64M"};
  std::string algorithm = "auto";
  int root = 0;
  int slices = 1;
  std::vector<std::string> fail;
  std::vector<std::string> slow;
  std::vector<std::string> stragglers;
  double jitter = 0;
  uint64_t seed = 0;
  double overhead_us = 0;
  std::string reduce_bandwidth;
  bool every_rank = false;
  std::string json;

  // Of "train".
  int stages = 1;
  int tensor = 1;
  int blocks = 1;
  bool shares_rows = false;
  std::string schedule = "1f1b";
  std::optional<int> virtual_stages;
  int micro_batches = 1;
  std::vector<double> forward_us;
  std::vector<double> backward_us;
  std::vector<double> backward_weight_us;
  std::string activation_bytes;
  std::string gradient_bytes;
  std::string bucket_bytes = "25M";
  int zero = 0;
  double optimizer_us = 0;
  bool recomputes = false;
  std::vector<std::string> sync;  // ways
  int64_t updates = 100;

  bool tries_several() const { return algorithm == "all" || algorithm == "auto"; }
  // Nothing makes some ranks, links or messages different from others.
  bool is_even() const {
    return fail.empty() && slow.empty() && stragglers.empty() && jitter == 0 && !every_rank;
  }
};

// Of `gpu`: the network of so many of the class on one host, and what a kernel's steps take beside
// it by the simple protocol, unless options say so. Launches are left out.
void take_gpu_class(SimulateOptions& options);

// A network with its troubles, and how it is played on.
struct SimulatedNetwork {
  explicit SimulatedNetwork(const SimulateOptions& options);

  std::unique_ptr<Network> network;
  int ranks = 1;
  SimulationOptions simulation;
  std::vector<double> slowdowns;  // by rank: how many times as long it computes
  // Of a host, that may be played as one: 1 where something makes them different.
  int alike = 1;
};

// Steps over all ranks that are played.
inline constexpr int64_t kMostSteps = 40'000'000;

// Of programs that are too long to be played, where nothing is in trouble.
std::optional<Rounds> rounds_in_place_of(const SimulateOptions& options, const Algorithm& algorithm,
                                         const Shape& shape, double bytes, const Network& network);

// The one that is named; for `all`, all that are not too long; for `auto`, of these the most
// promising, so many.
std::vector<const Algorithm*> algorithms_to_play(const SimulateOptions& options,
                                                 Collective collective, const Shape& shape,
                                                 double bytes, Network& network,
                                                 size_t most_for_auto);

// On the terminal, in place of what it showed before; part: from 0 to 1, or -1.
void show_progress(const std::string& what, double part);
void end_progress();

// Throws Error(invalid_argument).
[[noreturn]] void refuse(const std::string& what, const std::string& remedy);

// "leaf0 -> spine1 (87%)"
std::string busiest_link(const SimulationResult& result, const Network& network);
void add_busiest_link(const SimulationResult& result, const Network& network, Json& json);

// Plays each until it takes longer than the best so far (for `all`: to its end); what is too long
// is not tried. Rows have a time_us(). The quickest comes first; without `all`, alone.
template <typename Row, typename Play>
std::vector<Row> play_each(const SimulateOptions& options,
                           const std::vector<const Algorithm*>& algorithms, const Play& play) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  const bool all = options.algorithm == "all";
  double least = kNever;
  std::vector<Row> rows;
  std::optional<Error> too_long;
  for (const Algorithm* algorithm : algorithms) {
    try {
      Row row = play(*algorithm, all ? kNever : least);
      least = std::min(least, row.time_us());
      if (std::isfinite(row.time_us())) rows.push_back(std::move(row));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::unsupported || !options.tries_several()) throw;
      too_long = error;
    }
  }
  if (rows.empty() && too_long) throw Error(*too_long);
  if (rows.empty()) {
    throw Error(ErrorCode::unsupported,
                cat("none of the algorithms for ", options.what, " is quickly tried"),
                {.cause = "their messages share links in too many ways",
                 .remedy = "name one with --algorithm, which is played however long it takes"});
  }
  std::ranges::stable_sort(rows, {}, [](const Row& row) { return row.time_us(); });
  if (!all) rows.resize(1);
  return rows;
}

// `tutti simulate --gpu`, where nothing is in trouble.
int simulate_on_gpus(const SimulateOptions& options, Collective collective,
                     const std::vector<double>& sizes);

void add_train_options(Command command, SimulateOptions& options);
// Throws UsageError for options that do not fit together, or the collective.
void check_train_options(const Command& command, const SimulateOptions& options);

// `tutti simulate train`, without and with --sync.
int simulate_train(const SimulateOptions& options);
int simulate_sync(const SimulateOptions& options);

}  // namespace tutti::tool
