// What two looks at a job, one after the other, say of it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "transport/bootstrap/membership/sight.h"

namespace tutti::tool {

struct RankView {
  bootstrap::RankSight sight;
  // Between the looks:
  double calls_per_second = 0;
  double bytes_per_second = 0;
  double waiting_share = 0;  // of the time
  // By how much more of the time the others (their median) waited than this one. A rank that comes
  // late finds the others there, and waits least of all: no clocks need be compared for that.
  double late_share = 0;
  double late_seconds = 0;  // the same, of each call
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
  double seconds = 0;  // between the looks
  std::vector<RankView> ranks;
  std::vector<LinkView> links;  // the busiest first
  std::optional<Straggler> straggler;
};

JobView compare(const std::vector<bootstrap::RankSight>& before,
                const std::vector<bootstrap::RankSight>& now, double seconds);

std::string describe(const bootstrap::RankSight& sight);  // "rank 3 (node7, pid 1234)"

Json to_json(const JobView& view);
// A table, of so many ranks at most (those that are latest), the links and the straggler.
std::string to_text(const JobView& view, size_t most_ranks);

}  // namespace tutti::tool
