// Adds the all-gathers of sharded parameters in ZeRO (Rajbhandari et al., 2020), and determines
// which entries of a rank's row wait for them.
//
//   stages 1 and 2   gather   F0  F1  B0  B1        once, before a chunk's first forward
//   stage 3          g F0  g F1  g B0  g B1         before each forward and each backward: ranks
//                                                   keep only their shards
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "collectives/simulate/joint_schedule.h"
#include "training/pipeline/schedule.h"

namespace tutti::training {

// Returns, for each entry of the row, true if it waits for a gather. backward_weight needs no
// parameters.
std::vector<bool> waits_for_gather(std::span<const pipeline::Entry> row, int zero);

class ParameterGathers {
 public:
  using Step = JointSchedule::Step;

  // Adds the gathers of a group to `joint`, one after the other. `members`: ranks of the group,
  // whose entries are `row`; `alike`: number of consecutive members that are simulated as one.
  void add(JointSchedule& joint, const Schedule& all_gather, double bytes,
           std::span<const int32_t> members, int32_t alike, std::span<const pipeline::Entry> row,
           int zero);
  bool empty() const { return groups_.empty(); }
  void clear() { groups_.clear(); }
  // Returns the first and last step of the gather that an entry waits for; nullopt if it waits for
  // none. `member`: index of the rank whose steps are returned, among the simulated members of the
  // group.
  std::optional<std::pair<Step, Step>> of(size_t group, size_t entry, size_t member) const;

 private:
  using Ends = std::vector<std::pair<Step, Step>>;  // by simulated member
  std::vector<std::vector<Ends>> groups_;  // by group and entry; empty: the entry does not wait
};

}  // namespace tutti::training
