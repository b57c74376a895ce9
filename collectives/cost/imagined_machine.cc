#include "collectives/cost/imagined_machine.h"

#include <optional>

#include "transport/paths/paths.h"

namespace tutti {

Machine imagined_machine(const Hosts& hosts, bool shm, PathClass far, const CostModel& model) {
  const bool near_shm = shm && hosts.largest() > 1;
  return {.model = model,
          .limits = agreed_limits(
              hosts.ranks(), hosts.largest(), near_shm,
              near_shm && hosts.count() == 1 ? std::nullopt : std::optional<PathClass>(far)),
          .hosts = hosts,
          .near_shm = near_shm,
          .far = far};
}

}  // namespace tutti
