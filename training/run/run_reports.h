// Reports at the end of a run, in addition to the losses.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "training/engine/replica.h"

namespace tutti::training {

// Report of one rank since the start of training in this process.
struct RankReport {
  // number of steps that this rank has computed; with servers, number of pushes of this worker
  uint64_t clock = 0;
  double waited_seconds = 0;
  // seconds of waiting for samples that the loader had not prepared yet
  double waited_for_data_seconds = 0;
  double bytes_sent = 0;
  // With servers: staleness of the values with which a worker computes, as a number of updates
  // (async) or of clocks (other methods).
  struct Staleness {
    int64_t largest = 0;
    double mean = 0;
  };
  std::optional<Staleness> staleness;
};

// Seconds for which a rank has waited.
struct Waits {
  double communication = 0;
  double data = 0;
};

// Collective. Returns the reports of all ranks, for a replica that has done `steps` steps in this
// process.
std::vector<RankReport> reports_of_ranks(Replica& replica, uint64_t steps, const Waits& waits);

// Returns a digest (checkpoint/checksum.h) of the model's values, all of which this rank must have.
// The digest does not depend on how servers shard the values.
std::string digest_of_values(Model& model);
// Collective. Returns one digest per rank, of the parameters of the rank's stage and part. Each
// rank hashes its own copy; with ZeRO 3, where a rank has only shards, it gathers the values first.
std::vector<std::string> digests_of_ranks(Replica& replica, Model& model);

// Returns a digest of a run's settings (RunConfiguration::run), except those that determine when
// ranks synchronize, because a record contains those separately (parallel/replay/update_order.h).
std::string digest_of_settings(Json settings);

}  // namespace tutti::training
