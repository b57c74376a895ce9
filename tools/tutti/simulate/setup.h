// Declarations that the parts of `tutti simulate` share: collectives (simulate.cc), training steps
// (train.cc), and synchronization methods of data-parallel ranks (sync.cc).
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
  std::string gpu;  // GPU class, which replaces a topology
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

  // Options of `tutti simulate train`.
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
  std::vector<std::string> sync;  // values of --sync
  int64_t updates = 100;

  bool tries_several() const { return algorithm == "all" || algorithm == "auto"; }
  // Returns true if all ranks, links and messages behave alike.
  bool is_even() const {
    return fail.empty() && slow.empty() && stragglers.empty() && jitter == 0 && !every_rank;
  }
};

// Applies the option `gpu`: sets the topology to one host with `ranks` GPUs of this type, whose
// links have the costs of a kernel's steps with the simple protocol. If --reduce-bandwidth is not
// given, sets it to the bandwidth of these GPUs. Launch times are not included.
void take_gpu_class(SimulateOptions& options);

// A network with its faults, and the options of simulations on it.
struct SimulatedNetwork {
  explicit SimulatedNetwork(const SimulateOptions& options);

  std::unique_ptr<Network> network;
  int ranks = 1;
  SimulationOptions simulation;
  std::vector<double> slowdowns;  // indexed by rank: factor by which its computation takes longer
  // Number of a host's ranks that are simulated as one, because they behave alike; 1 if they do
  // not.
  int alike = 1;
};

// Maximum number of simulated steps over all ranks.
inline constexpr int64_t kMostSteps = 40'000'000;

// Returns the rounds to simulate instead of a program that is too long. Returns nothing if the
// program is not too long, or if there are faults or options that rounds do not support.
std::optional<Rounds> rounds_in_place_of(const SimulateOptions& options, const Algorithm& algorithm,
                                         const Shape& shape, double bytes, const Network& network);

// Returns the named algorithm. For `all`, returns all algorithms that are not too long. For `auto`,
// returns the `most_for_auto` most promising of these. In both cases adds longer programs that
// rounds can replace and, for an all-reduce on a network whose ranks forward data, the rings that
// `tutti topo` finds. Throws Error(unsupported) if there is no algorithm.
std::vector<const Algorithm*> algorithms_to_play(const SimulateOptions& options,
                                                 Collective collective, const Shape& shape,
                                                 double bytes, Network& network,
                                                 size_t most_for_auto);

// Updates the progress line on a terminal. `part`: fraction from 0 to 1, or -1 if unknown.
void show_progress(const std::string& what, double part);
void end_progress();

// Throws Error(invalid_argument) with the message `what` and the remedy.
[[noreturn]] void refuse(const std::string& what, const std::string& remedy);

// Returns the busiest link as text: "leaf0 -> spine1 (87%)".
std::string busiest_link(const SimulationResult& result, const Network& network);
void add_busiest_link(const SimulationResult& result, const Network& network, Json& json);

// Simulates the algorithms one after the other by calling `play`, and skips those that are too
// long. For `all`, returns all rows, the fastest first. Otherwise stops a simulation once it takes
// longer than the best one so far, and returns only the fastest row. Rows have a time_us().
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
    throw Error(
        ErrorCode::unsupported,
        cat("none of the algorithms for ", options.what, " can be simulated quickly"),
        {.cause = "their messages share links in too many combinations",
         .remedy = "name one with --algorithm, which is simulated regardless of its duration"});
  }
  std::ranges::stable_sort(rows, {}, [](const Row& row) { return row.time_us(); });
  if (!all) rows.resize(1);
  return rows;
}

// Prints the predicted kernel times of --gpu, and returns the exit code. For calls that need no
// simulation, because none of --fail, --slow, --straggler, --jitter, --slices and the like is
// given.
int simulate_on_gpus(const SimulateOptions& options, Collective collective,
                     const std::vector<double>& sizes);

void add_train_options(Command command, SimulateOptions& options);
// Throws UsageError for options that contradict each other or the collective.
void check_train_options(const Command& command, const SimulateOptions& options);

// Runs `tutti simulate train`, with or without --sync, and returns the exit code.
int simulate_train(const SimulateOptions& options);
int simulate_sync(const SimulateOptions& options);

}  // namespace tutti::tool
