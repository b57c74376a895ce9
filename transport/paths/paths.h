// The paths between the members of one communicator: shared memory within a host, TCP or a fabric
// between hosts. The table of hosts and the settings, which are the same on all members, determine
// which path each pair uses.
//
// Threads: one at a time, except accept(), opened() and the memory calls.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/abort.h"
#include "base/cleanup.h"
#include "base/fd.h"
#include "transport/limits.h"
#include "transport/path_class.h"
#include "transport/paths/endpoint.h"
#include "transport/remote_memory.h"
#include "transport/transport.h"

namespace tutti {

class FabricTransport;
class ShmTransport;
class TcpTransport;

class Paths {
 public:
  // Callbacks that report failures, with peers as ranks of the communicator. They are called while
  // the transport is in use.
  struct Events {
    // Reports that the connection to (`sending`) or from `peer` broke while it was needed.
    std::function<void(int peer, bool sending, const std::string& text)> lost;
    // Reports that bytes from `peer` were corrupted in transit.
    std::function<void(int peer, const std::string& text)> corrupted;
    // Reports that memory which `peer` has lent is permanently unreadable; `error` is the system's
    // errno.
    std::function<void(int peer, int error)> unreadable;
    // Aborts the communicator, as TUTTI_FAULT requests.
    std::function<void()> abort;
  };

  // Opens the paths. Collective among `members`, which are two or more world ranks; members[rank]
  // is this rank. `id`: the communicator's. `throw_if_aborted` is called repeatedly while this
  // function or wait_for_host() waits for other members. Throws Error: unsupported, timeout,
  // connection_lost, rank_died, system, or the error of `throw_if_aborted`.
  Paths(Endpoint& endpoint, uint64_t id, std::span<const int> members, int rank, Events events,
        std::function<void()> throw_if_aborted);
  Paths(const Paths&) = delete;
  Paths& operator=(const Paths&) = delete;

  Transport& transport() { return *transport_; }
  // Returns the limits, which are the same on all members.
  const Limits& limits() const { return limits_; }
  std::string_view name() const { return name_; }  // "shm", "tcp", "ucx", "shm+ofi" ...
  PathClass far() const { return far_; }           // between ranks without shared memory
  bool any_shm() const { return any_shm_; }        // true: some members of one host share memory
  // Returns true if some messages can be sent without a copy (Transport::can_lend).
  bool lends() const { return shm_ != nullptr || (fabric_ != nullptr && !any_shm_); }

  // Blocks until all members of this host have mapped its shared memory. After that a member may
  // exit without waiting for the others. Throws Error(timeout), or the error of `throw_if_aborted`.
  void wait_for_host();
  // Sends committed messages, and gives up when no bytes are accepted for `patience` (0: no limit).
  // The endpoint then waits for bytes that the operating system still has to deliver. Nothing can
  // be sent afterwards.
  void send_last_bytes(const AbortState& abort, std::chrono::nanoseconds patience);

  // Take a connection that `peer` opened, or one that this rank requested. Thread-safe.
  void accept(int peer, int lane, int number, ByteStream socket);
  void opened(int peer, int lane, ByteStream socket);

  // Returns zeroed memory that other ranks of the host can read in place; it is freed with the last
  // copy of the pointer. Null if none is available, or no rank could read it.
  std::shared_ptr<void> allocate(size_t bytes);
  // Lets other ranks of the host read this memory in place until the last copy of the result is
  // released (shm::Heap::adopt). Null if no rank could read it.
  std::shared_ptr<void> register_memory(std::span<std::byte> range);
  // Returns true if the member shares memory with this rank.
  bool is_near(int rank) const;
  // Returns the location, for other members of the host, of memory that one call of allocate() or
  // register_memory() provided; nullopt for other memory. The location is valid while the memory's
  // owner keeps it.
  std::optional<uint64_t> place_of(std::span<const std::byte> memory);
  // Maps memory at a near member's location for reading and writing. Null if the address space has
  // no room. The owner must keep the memory while the mapping lives.
  std::shared_ptr<std::byte> map(uint64_t place, size_t bytes);

  // Lets members that are not near access this memory by the fabric's own remote memory access.
  // Null if there is no such fabric, or it refuses the memory.
  std::unique_ptr<ExposedMemory> expose(std::span<std::byte> memory);
  // Returns the memory that a member has exposed with this key; null if it cannot be reached.
  std::unique_ptr<RemoteMemory> reach(int member, std::string_view key);

 private:
  std::unique_ptr<Transport> open_shm(const std::vector<int>& local, int largest_local);
  std::shared_ptr<shm::Region> region_by_descriptor(std::span<const int> host,
                                                    const shm::Geometry& geometry);
  std::shared_ptr<shm::Region> region_in_table(int owner, const shm::Geometry& geometry);
  Fd fetch(int owner, const std::string& name, size_t local_ranks) const;
  std::unique_ptr<Transport> open_tcp();
  std::unique_ptr<Transport> open_fabric();
  std::shared_ptr<shm::Heap> heap();

  Endpoint& endpoint_;
  const uint64_t id_;
  const std::vector<int> members_;
  const int rank_;
  const Events events_;
  const std::function<void()> throw_if_aborted_;
  bool any_shm_ = false;
  PathClass far_ = PathClass::tcp;
  std::string name_;
  int rails_ = 1;  // number of rails that all members have
  Limits limits_;
  // Cleanup that returns the room of a region that this rank created. It runs after the transport
  // is destroyed.
  Cleanup room_;
  Cleanup offer_;  // withdraws the offer of that region once all members have mapped it
  std::unique_ptr<Transport> transport_;
  TcpTransport* tcp_ = nullptr;  // owned by transport_, as are shm_ and fabric_
  FabricTransport* fabric_ = nullptr;
  ShmTransport* shm_ = nullptr;
  std::vector<int> local_;  // ranks of this host, which share the memory of shm_
};

// Returns TUTTI_TCP_STREAMS for ranks with this number of rails. Throws Error(invalid_argument) if
// it is out of range.
int tcp_streams(int rails);

// Returns the limits that a communicator of `ranks` members would have, without creating one.
// `largest_local`: the maximum number of members on a host. `far`: the path between hosts, if there
// are several.
Limits agreed_limits(int ranks, int largest_local, bool any_shm, std::optional<PathClass> far,
                     int rails = 1);

}  // namespace tutti
