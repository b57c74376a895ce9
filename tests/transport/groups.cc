#include "tests/transport/groups.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <map>
#include <numeric>
#include <random>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/fd.h"
#include "base/text.h"
#include "transport/fabric/fabric_transport.h"
#include "transport/ofi/ofi_driver.h"
#include "transport/router.h"
#include "transport/shm/shm_transport.h"
#include "transport/ucx/library.h"
#include "transport/ucx/ucx_driver.h"

namespace tutti::testing {

std::vector<std::unique_ptr<TcpTransport>> make_wired(int ranks, std::shared_ptr<Wires> wires) {
  std::vector<std::unique_ptr<TcpTransport>> group;
  for (int r = 0; r < ranks; ++r) {
    TcpTransport::Hooks hooks;
    hooks.open = [wires, r](int peer, int lane, Renewal) {
      int pair[2];
      if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0) {
        throw system_error("socketpair", errno);
      }
      wires->ends[peer]->accept(r, lane, 0, Fd(pair[1]));
      wires->ends[r]->opened(peer, lane, Fd(pair[0]));
      wires->wake(peer);
    };
    hooks.lost = [wires](int, bool, const std::string&) { ++wires->lost; };
    hooks.corrupted = [wires](int, const std::string&) { ++wires->corrupted; };
    group.push_back(std::make_unique<TcpTransport>(ranks, 2, std::move(hooks)));
    wires->ends.push_back(group.back().get());
  }
  return group;
}

namespace {

// The names are random, because process IDs are not unique: other sandboxes on this network have
// the same ones.
Group make_sets(int ranks) {
  Group group;
  std::random_device random;
  for (int r = 0; r < ranks; ++r) {
    group.sets.push_back(
        std::make_unique<WaitSet>(cat("tutti-contract-", random(), "-", random())));
  }
  return group;
}

std::unique_ptr<ShmTransport> make_one(int rank, const Fd& memory, const shm::Geometry& geometry,
                                       const WaitSet& set, const std::vector<std::string>& bells) {
  auto transport =
      std::make_unique<ShmTransport>(rank, shm::Region::map(memory, geometry), geometry);
  transport->use(set, [bells](int peer) { return bells[static_cast<size_t>(peer)]; });
  return transport;
}

std::shared_ptr<Wires> wires_of(const Group& group) {
  auto wires = std::make_shared<Wires>();
  for (const auto& set : group.sets) wires->sets.push_back(set.get());
  return wires;
}

// Creates the transport of each rank as if the rank were a separate process.
std::vector<std::unique_ptr<Transport>> make_by(Group& group,
                                                std::unique_ptr<fabric::Driver> (*make_driver)()) {
  const auto ranks = static_cast<int>(group.sets.size());
  auto addresses = std::make_shared<std::vector<std::string>>();
  for (int r = 0; r < ranks; ++r) {
    group.providers.push_back(std::make_unique<fabric::Provider>(make_driver()));
    addresses->push_back(group.providers[r]->address());
  }
  std::vector<int> members(ranks);
  std::iota(members.begin(), members.end(), 0);
  std::vector<std::unique_ptr<Transport>> transports;
  for (int r = 0; r < ranks; ++r) {
    group.providers[r]->join(
        {.own = r,
         .count = ranks,
         .address_of = [addresses](int rank) -> std::string_view { return addresses->at(rank); },
         .gone = [](int) { return false; }},
        *group.sets[r]);
    const auto lost = [may_lose = group.may_lose](int peer, bool, const std::string& why) {
      if (!*may_lose) ADD_FAILURE() << "lost " << peer << ": " << why;
    };
    transports.push_back(
        std::make_unique<FabricTransport>(*group.providers[r], 7, members, r, lost));
  }
  return transports;
}

std::vector<std::unique_ptr<Transport>> make_by_ucx(Group& group) {
  return make_by(group, []() -> std::unique_ptr<fabric::Driver> {
    return std::make_unique<ucx::UcxDriver>();
  });
}

std::vector<std::unique_ptr<Transport>> make_by_net(Group& group) {
  return make_by(group, []() -> std::unique_ptr<fabric::Driver> {
    return std::make_unique<ofi::OfiDriver>(ofi::Near{.address = "127.0.0.1"}, "net");
  });
}

std::vector<std::unique_ptr<Transport>> make_by_rxm(Group& group) {
  return make_by(group, []() -> std::unique_ptr<fabric::Driver> {
    return std::make_unique<ofi::OfiDriver>(ofi::Near{.address = "127.0.0.1"}, "tcp;ofi_rxm");
  });
}

std::vector<std::unique_ptr<Transport>> make_by_tcp(Group& group) {
  std::vector<std::unique_ptr<Transport>> transports;
  for (auto& one : make_wired(static_cast<int>(group.sets.size()), wires_of(group))) {
    transports.push_back(std::move(one));
  }
  return transports;
}

Group place(const std::vector<int>& host_of,
            std::vector<std::unique_ptr<Transport>> (*make_far)(Group&)) {
  const auto ranks = static_cast<int>(host_of.size());
  Group group = make_sets(ranks);
  auto far = make_far(group);
  group.transports.resize(ranks);
  std::map<int, std::vector<int>> hosts;
  for (int r = 0; r < ranks; ++r) hosts[host_of[r]].push_back(r);
  size_t largest = 0;
  for (const auto& [host, members] : hosts) largest = std::max(largest, members.size());
  for (const auto& [host, members] : hosts) {
    if (members.size() == 1) {
      group[members[0]] = std::move(far[members[0]]);
      continue;
    }
    const shm::Geometry geometry(static_cast<int>(members.size()), static_cast<int>(largest));
    const Fd memory = shm::Region::create(geometry);
    std::vector<int> near_rank(ranks, -1);
    std::vector<std::string> bells;
    for (const int r : members) {
      near_rank[r] = static_cast<int>(bells.size());
      bells.push_back(group.sets[r]->name());
    }
    for (const int r : members) {
      group[r] =
          std::make_unique<Router>(make_one(near_rank[r], memory, geometry, *group.sets[r], bells),
                                   near_rank, std::move(far[r]));
    }
  }
  return group;
}

std::vector<int> on_two_hosts(int ranks) {
  std::vector<int> host_of(ranks + 2);
  for (int r = 0; r < ranks + 2; ++r) host_of[r] = r % 2;
  return host_of;
}

Group make_far(int ranks, std::vector<std::unique_ptr<Transport>> (*make)(Group&)) {
  Group group = make_sets(ranks);
  group.transports = make(group);
  return group;
}

}  // namespace

Group make_shm(int ranks) {
  const shm::Geometry geometry(ranks, ranks);
  const Fd memory = shm::Region::create(geometry);
  Group group = make_sets(ranks);
  std::vector<std::string> bells;
  for (const auto& set : group.sets) bells.push_back(set->name());
  for (int r = 0; r < ranks; ++r) {
    group.transports.push_back(make_one(r, memory, geometry, *group.sets[r], bells));
  }
  return group;
}

Group make_tcp(int ranks) { return make_far(ranks, make_by_tcp); }
Group make_ucx(int ranks) { return make_far(ranks, make_by_ucx); }
Group make_ofi(int ranks) { return make_far(ranks, make_by_net); }
Group make_rxm_ofi(int ranks) { return make_far(ranks, make_by_rxm); }

// Sets the variable temporarily, because UCX reads its settings when a driver is created.
Group make_rendezvous_ucx(int ranks) {
  ucx::library();  // which sets its defaults
  const char* const before = std::getenv("UCX_RNDV_THRESH");
  const std::string old = before != nullptr ? before : "auto";
  ::setenv("UCX_RNDV_THRESH", "8192", 1);
  Group group = make_ucx(ranks);
  ::setenv("UCX_RNDV_THRESH", old.c_str(), 1);
  return group;
}

Group make_placed(const std::vector<int>& host_of) { return place(host_of, make_by_tcp); }
Group make_near(int ranks) { return make_placed(std::vector<int>(ranks, 0)); }
Group make_mixed(int ranks) { return make_placed(on_two_hosts(ranks)); }
Group make_mixed_ucx(int ranks) { return place(on_two_hosts(ranks), make_by_ucx); }
Group make_mixed_ofi(int ranks) { return place(on_two_hosts(ranks), make_by_net); }

}  // namespace tutti::testing
