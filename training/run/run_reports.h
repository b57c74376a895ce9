// Reports at the end of a run, besides losses.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "training/engine/replica.h"

namespace tutti::training {

// Since the start of training in this process.
struct RankReport {
  uint64_t clock = 0;  // steps of the rank; async: parts of steps
  double waited_seconds = 0;
  double waited_for_data_seconds = 0;  // for samples that the loader had not made yet
  double bytes_sent = 0;
  // With servers: number of updates (async), or clocks, by which a worker's values were stale.
  struct Staleness {
    int64_t largest = 0;
    double mean = 0;
  };
  std::optional<Staleness> staleness;
};

// A rank's seconds of waiting.
struct Waits {
  double communication = 0;
  double data = 0;
};

// Collective. Reports of all ranks, for a replica that has done `steps` steps in this process.
std::vector<RankReport> reports_of_ranks(Replica& replica, uint64_t steps, const Waits& waits);

// A digest (checkpoint/checksum.h) of the model's values, all of which this rank must have;
// independent of how servers shard them.
std::string digest_of_values(Model& model);
// Collective. A digest of the parameters of each rank's stage and part, by rank. Each rank hashes
// its own copy; with ZeRO 3, which keeps none, the values are gathered first.
std::vector<std::string> digests_of_ranks(Replica& replica, Model& model);

// A digest of a run's settings (RunConfiguration::run), except those of when ranks synchronize,
// which a record contains itself (parallel/replay/update_order.h).
std::string digest_of_settings(Json settings);

}  // namespace tutti::training
