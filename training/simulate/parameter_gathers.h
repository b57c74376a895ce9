// ZeRO (Rajbhandari et al., 2020): gathers of parameters from the ranks that keep their parts, and
// which entries of a rank's row wait for them.
//
//   stages 1 and 2   gather   F0  F1  B0  B1        once, before the first forward of a chunk
//   stage 3          g F0  g F1  g B0  g B1         before each forward and each backward: nobody
//                                                   keeps what is not its part
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "collectives/simulate/joint_schedule.h"
#include "training/pipeline/schedule.h"

namespace tutti::training {

// By entry of the row. Backwards for weights alone need no parameters.
std::vector<bool> waits_for_gather(std::span<const pipeline::Entry> row, int zero);

class ParameterGathers {
 public:
  using Step = JointSchedule::Step;

  // Those of a group of ranks with this row, one after the other.
  void add(JointSchedule& joint, const Schedule& all_gather, double bytes,
           std::span<const int32_t> members, int32_t alike, std::span<const pipeline::Entry> row,
           int zero);
  bool empty() const { return groups_.empty(); }
  void clear() { groups_.clear(); }
  // Where the gather begins and ends, on a member that is walked, that an entry waits for.
  std::optional<std::pair<Step, Step>> of(size_t group, size_t entry, size_t member) const;

 private:
  using Ends = std::vector<std::pair<Step, Step>>;  // by member that is walked
  std::vector<std::vector<Ends>> groups_;           // by entry; empty where it waits for none
};

}  // namespace tutti::training
