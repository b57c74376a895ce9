#include "collectives/cost/imagined_machine.h"

#include "transport/paths/paths.h"

namespace tutti {

Machine imagined_machine(int ranks, int group, bool shm, const CostModel& model) {
  const bool near_shm = shm && group > 1;
  return {.model = model,
          .limits = agreed_limits(ranks, group, near_shm, !near_shm || group < ranks),
          .hosts = Hosts::equal(ranks, group),
          .near_shm = near_shm};
}

}  // namespace tutti
