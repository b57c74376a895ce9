// Ranks of one communicator in this process, by every transport, for tests.
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

// The ranks of one communicator, and what each of them sleeps on.
struct Group {
  std::unique_ptr<Transport>& operator[](size_t rank) { return transports[rank]; }
  // Returns when all others know how much this rank has sent, which they need to know of one that
  // leaves; where sending alone does not tell them.
  void let_know(size_t rank) const {
    if (!providers.empty()) providers[rank]->leave();
  }
  // A connection of a fabric that is lost fails the test, unless this is set.
  std::shared_ptr<std::atomic<bool>> may_lose = std::make_shared<std::atomic<bool>>(false);
  std::vector<std::unique_ptr<WaitSet>> sets;
  std::vector<std::unique_ptr<fabric::Provider>> providers;
  std::vector<std::unique_ptr<Transport>> transports;
};

// The sockets that a bootstrap would open are socket pairs here.
struct Wires {
  void wake(int rank) const {
    if (!sets.empty()) sets[rank]->wake();
  }
  std::vector<TcpTransport*> ends;
  std::vector<WaitSet*> sets;  // the ends' own, if they sleep
  std::atomic<int> lost{0};
  std::atomic<int> corrupted{0};
};

// `wires` gets the ends.
std::vector<std::unique_ptr<TcpTransport>> make_wired(int ranks, std::shared_ptr<Wires> wires);

Group make_shm(int ranks);
Group make_tcp(int ranks);
Group make_ucx(int ranks);
Group make_rendezvous_ucx(int ranks);  // from 8 KiB on
Group make_ofi(int ranks);             // by its provider of sockets
Group make_rxm_ofi(int ranks);         // by one that is layered over connections
// All on one host, so that what comes through shared memory must end a sleep on descriptors.
Group make_near(int ranks);
// Two hosts: the even ranks on one, the odd ones on the other, each with one more for company.
Group make_mixed(int ranks);
Group make_mixed_ucx(int ranks);
Group make_mixed_ofi(int ranks);
// Where each rank is. Who has company on its host reaches that through shared memory, others by
// TCP.
Group make_placed(const std::vector<int>& host_of);

}  // namespace tutti::testing
