#include "collectives/program/bus_factor.h"

namespace tutti {

double bus_factor(Collective collective, int ranks) {
  const double p = ranks;
  switch (collective) {
    case Collective::all_reduce:
      return 2 * (p - 1) / p;
    case Collective::all_gather:
    case Collective::reduce_scatter:
    case Collective::gather:
    case Collective::scatter:
    case Collective::all_to_all:
      return (p - 1) / p;
    default:
      return 1;
  }
}

}  // namespace tutti
