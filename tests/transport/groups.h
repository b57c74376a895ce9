// Ranks of one communicator in this process over every transport, for tests.
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
  // Waits until all other ranks know how much this rank has sent, if sending alone does not tell
  // them. A rank that leaves needs this.
  void let_know(size_t rank) const {
    if (!providers.empty()) providers[rank]->leave();
  }
  // A lost connection of a fabric fails the test unless this is set.
  std::shared_ptr<std::atomic<bool>> may_lose = std::make_shared<std::atomic<bool>>(false);
  std::vector<std::unique_ptr<WaitSet>> sets;
  std::vector<std::unique_ptr<fabric::Provider>> providers;
  std::vector<std::unique_ptr<Transport>> transports;
};

// Socket pairs instead of the sockets that a bootstrap would open.
struct Wires {
  void wake(int rank) const {
    if (!sets.empty()) sets[rank]->wake();
  }
  std::vector<TcpTransport*> ends;
  std::vector<WaitSet*> sets;  // wait sets of `ends`, if they sleep
  std::atomic<int> lost{0};
  std::atomic<int> corrupted{0};
};

// Makes transports that are connected by socket pairs; adds them to `wires`.
std::vector<std::unique_ptr<TcpTransport>> make_wired(int ranks, std::shared_ptr<Wires> wires);

Group make_shm(int ranks);
Group make_tcp(int ranks);
Group make_ucx(int ranks);
Group make_rendezvous_ucx(int ranks);  // rendezvous protocol from 8 KiB on
Group make_ofi(int ranks);             // provider of sockets
Group make_rxm_ofi(int ranks);         // a provider that is layered over connections
// All ranks are on one host, so that shared memory must end a sleep on descriptors.
Group make_near(int ranks);
// Makes two more ranks than requested, the even ranks on one host and the odd ones on another.
Group make_mixed(int ranks);
Group make_mixed_ucx(int ranks);
Group make_mixed_ofi(int ranks);
// host_of[r] is the host of rank r. Ranks of one host use shared memory, all other pairs TCP.
Group make_placed(const std::vector<int>& host_of);

}  // namespace tutti::testing
