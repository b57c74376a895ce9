// Predicts the costs of memory traffic and communication on this host while all its processors are
// busy.
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
  // Takes the costs of collectives from the results of `tutti tune`, or default costs if there are
  // none. Measures memory bandwidth for some 50 ms.
  explicit HostPrices(int processors);

  int processors() const { return processors_; }
  // Returns the seconds in which one of many busy processors reads and writes `bytes` bytes in
  // total.
  double moved(double bytes) const { return bytes / bytes_per_second_; }
  // Returns the seconds of a collective of `ranks` ranks that share `processors` processors;
  // `bytes` are counted as in `tutti bench`.
  double collective(Collective collective, int ranks, double bytes, double processors);
  // Returns the seconds of a message between two ranks.
  double message(double bytes) const;

 private:
  int processors_;
  double bytes_per_second_;
  CostModel costs_;
  // key: numbers of ranks and processors
  std::map<std::pair<int, int>, std::unique_ptr<Planner>> planners_;
  std::map<std::tuple<Collective, int, int, uint64_t>, double> known_;
};

}  // namespace tutti::training::planner
