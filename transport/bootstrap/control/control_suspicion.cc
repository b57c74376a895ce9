// Handles ranks that are alive but unreachable by data connections.
//
//   a data connection to rank r fails    this rank suspects r, and tries to reach it (a probe)
//     r has died or left                   this explains the failure
//     otherwise                            the communicator is aborted, naming the two ranks
//       the probe succeeds                   only that connection was broken: all can continue
//       the probe fails                      in the next change of members this rank reports that
//                                            it cannot reach r, and their hosts are separated
//
// Links of the control channel may still work, through ranks that reach both.
#include <chrono>

#include "transport/bootstrap/control/control_service.h"

namespace tutti::bootstrap {

namespace {

// Grace period for news of the peer's death.
constexpr std::chrono::seconds kTimeToLearnWhy{2};

}  // namespace

void ControlService::suspect_later(uint64_t communicator, int rank, const std::string& text) {
  probe(rank);
  after(kTimeToLearnWhy, [this, communicator, rank, text] {
    if (left_[rank] || has_died(rank)) return;
    if (probes_.contains(rank) && !clients_.deaths()) unreached_.insert(rank);
    flood_abort(communicator,
                clients_.deaths().value_or(Error(ErrorCode::connection_lost, text, {.rank = rank})),
                -1);
  });
}

void ControlService::probe(int rank) {
  const auto [last, is_first] = probes_.try_emplace(rank, Probe::in_flight);
  if (!is_first && last->second == Probe::in_flight) return;
  last->second = Probe::in_flight;
  Hello hello = make_hello(Purpose::control);
  hello.number = 1;
  prober_.start(peer(rank), rank, hello, describe(rank));
}

void ControlService::take_as_reached(int rank) {
  probes_.erase(rank);
  unreached_.erase(rank);
}

}  // namespace tutti::bootstrap
