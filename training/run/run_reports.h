// What a run tells at its end, besides losses.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "training/engine/replica.h"

namespace tutti::training {

// Since training began here.
struct RankReport {
  uint64_t clock = 0;  // steps that the rank has done; async: parts of steps
  double waited_seconds = 0;
  double waited_for_data_seconds = 0;  // for samples that the loader had not made yet
  double bytes_sent = 0;
  // With servers: by how many updates (async), or clocks, a worker's values were behind.
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

// Collective. All ranks' reports, of a replica that has done so many steps here.
std::vector<RankReport> reports_of_ranks(Replica& replica, uint64_t steps, const Waits& waits);

// A digest (checkpoint/checksum.h) of the model's values on this rank, which has all of them: the
// same however they are cut among servers.
std::string digest_of_values(Model& model);
// Collective. A digest of the parameters of each rank's stage and part, by rank. Each rank hashes
// its own copy; with ZeRO 3, which keeps none, the values are gathered first.
std::vector<std::string> digests_of_ranks(Replica& replica, Model& model);

// Of a run's settings (RunConfiguration::run), but for when ranks meet, which a record tells itself
// (parallel/replay/update_order.h).
std::string digest_of_settings(Json settings);

}  // namespace tutti::training
