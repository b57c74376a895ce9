#include "collectives/cost/imagined_machine.h"

#include "transport/paths/paths.h"

namespace tutti {

Machine imagined_machine(const Hosts& hosts, bool shm, const CostModel& model) {
  const bool near_shm = shm && hosts.largest() > 1;
  return {.model = model,
          .limits = agreed_limits(hosts.ranks(), hosts.largest(), near_shm,
                                  !near_shm || hosts.count() > 1),
          .hosts = hosts,
          .near_shm = near_shm};
}

}  // namespace tutti
