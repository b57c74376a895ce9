// Computes statistics from two successive samples of a job.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "transport/bootstrap/membership/rank_status.h"

namespace tutti::tool {

struct RankView {
  bootstrap::RankStatus status;
  // calls per second between the samples
  double calls_per_second = 0;
  double bytes_per_second = 0;
  double waiting_share = 0;  // fraction of the time for which the rank waited
  // The other ranks' median waiting_share minus this rank's; at least 0. A late rank finds the
  // others waiting, so it waits least. Clocks need not be compared.
  double late_share = 0;
  double late_seconds = 0;  // late_share in seconds per call
};

struct LinkView {
  int from = 0;
  int to = 0;
  uint64_t bytes = 0;
  double bytes_per_second = 0;
};

struct Straggler {
  int rank = 0;
  std::string why;
};

struct JobView {
  double seconds = 0;  // seconds between the samples
  std::vector<RankView> ranks;
  std::vector<LinkView> links;  // links, the busiest first
  std::optional<Straggler> straggler;
};

JobView compare(const std::vector<bootstrap::RankStatus>& before,
                const std::vector<bootstrap::RankStatus>& now, double seconds);

// Returns the rank as text: "rank 3 (node7, pid 1234)".
std::string describe(const bootstrap::RankStatus& status);

Json to_json(const JobView& view);
// Returns a table of at most `most_ranks` ranks, those with the largest late_share, followed by the
// links and the straggler.
std::string to_text(const JobView& view, size_t most_ranks);

}  // namespace tutti::tool
