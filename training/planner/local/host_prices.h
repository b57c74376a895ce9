// Times in which this host moves bytes and communicates while all its processors are busy.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>

#include "collectives/cost/cost_model.h"
#include "collectives/cost/planner.h"
#include "collectives/program/program.h"

namespace tutti::training::planner {

class HostPrices {
 public:
  // Collectives by the costs of `tutti tune`, or by default ones. Measures memory for some 50 ms.
  explicit HostPrices(int processors);

  int processors() const { return processors_; }
  // Seconds in which a processor reads and writes bytes in all, beside others that do.
  double moved(double bytes) const { return bytes / bytes_per_second_; }
  // Seconds of a collective of `ranks` ranks that share `processors` of them; bytes as `tutti
  // bench` counts them.
  double collective(Collective collective, int ranks, double bytes, double processors);
  // Seconds of a message between two ranks.
  double message(double bytes) const;

 private:
  int processors_;
  double bytes_per_second_;
  CostModel costs_;
  std::map<std::pair<int, int>, std::unique_ptr<Planner>> planners_;  // by ranks and processors
  std::map<std::tuple<Collective, int, int, uint64_t>, double> known_;
};

}  // namespace tutti::training::planner
