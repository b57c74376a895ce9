// Creates the ranks of a communicator in this process, over every kind of transport, for tests.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <vector>

#include "transport/fabric/provider.h"
#include "transport/tcp/tcp_transport.h"
#include "transport/transport.h"
#include "transport/wait_set.h"

namespace tutti::testing {

// The ranks of one communicator, and their wait sets.
struct Group {
  std::unique_ptr<Transport>& operator[](size_t rank) { return transports[rank]; }
  // Waits until all other ranks have been notified of everything that this rank has sent, if
  // sending alone does not notify them. Needed before the rank leaves.
  void let_know(size_t rank) const {
    if (!providers.empty()) providers[rank]->leave();
  }
  // true: a lost connection of a fabric is expected; otherwise it fails the test
  std::shared_ptr<std::atomic<bool>> may_lose = std::make_shared<std::atomic<bool>>(false);
  std::vector<std::unique_ptr<WaitSet>> sets;
  std::vector<std::unique_ptr<fabric::Provider>> providers;
  std::vector<std::unique_ptr<Transport>> transports;
};

// Connects ranks by socket pairs, instead of the sockets that a bootstrap would open.
struct Wires {
  void wake(int rank) const {
    if (!sets.empty()) sets[rank]->wake();
  }
  std::vector<TcpTransport*> ends;
  std::vector<WaitSet*> sets;  // wait sets of the ranks, or empty if they never sleep
  std::atomic<int> lost{0};
  std::atomic<int> corrupted{0};
};

// Creates transports that are connected by socket pairs, and adds them to `wires`.
std::vector<std::unique_ptr<TcpTransport>> make_wired(int ranks, std::shared_ptr<Wires> wires);

Group make_shm(int ranks);
Group make_tcp(int ranks);
Group make_ucx(int ranks);
Group make_rendezvous_ucx(int ranks);  // uses the rendezvous protocol from 8 KiB on
Group make_ofi(int ranks);             // uses the provider for sockets
Group make_rxm_ofi(int ranks);         // uses a provider that is layered over connections
// All ranks are on one host, so that a message in shared memory must end a sleep on descriptors.
Group make_near(int ranks);
// These create two more ranks than requested: the even ranks on one host, the odd ranks on another.
Group make_mixed(int ranks);
Group make_mixed_ucx(int ranks);
Group make_mixed_ofi(int ranks);
// Rank r is on host host_of[r]. Ranks of one host communicate over shared memory, all others over
// TCP.
Group make_placed(const std::vector<int>& host_of);

}  // namespace tutti::testing
