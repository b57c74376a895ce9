// Costs of memory traffic and communication on this host while all its processors are busy.
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
  // Collectives are priced by the costs of `tutti tune`, or by default ones. Measures memory for
  // some 50 ms.
  explicit HostPrices(int processors);

  int processors() const { return processors_; }
  // Seconds in which one of many busy processors reads and writes this many bytes in all.
  double moved(double bytes) const { return bytes / bytes_per_second_; }
  // Seconds of a collective of `ranks` ranks that share `processors` processors; bytes as `tutti
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
