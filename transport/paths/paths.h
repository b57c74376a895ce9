// How the members of one communicator reach each other: through shared memory within a host, by TCP
// or a fabric between hosts, as the table of hosts and the settings have it, which all of them know
// alike.
//
// Threads: one at a time, but for accept(), opened() and the memory calls.
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
#include "transport/transport.h"

namespace tutti {

class FabricTransport;
class ShmTransport;
class TcpTransport;

class Paths {
 public:
  // What breaks, by the peers' ranks in the communicator. Called while the transport is at work.
  struct Events {
    // The connection to (`sending`) or from `peer` broke while it was needed.
    std::function<void(int peer, bool sending, const std::string& text)> lost;
    // Bytes from `peer` changed on the way.
    std::function<void(int peer, const std::string& text)> corrupted;
    // What `peer` has lent cannot be read, and never will be; `error` is the system's.
    std::function<void(int peer, int error)> unreadable;
    // TUTTI_FAULT has this rank abort the communicator.
    std::function<void()> abort;
  };

  // Collective among `members` (world ranks), of which this is number `rank`; two or more. `id` is
  // the communicator's. `throw_if_aborted` is called again and again while other members are waited
  // for, here and in wait_for_host(). Throws Error: unsupported, timeout, system, or what
  // `throw_if_aborted` throws.
  Paths(Endpoint& endpoint, uint64_t id, std::span<const int> members, int rank, Events events,
        std::function<void()> throw_if_aborted);
  Paths(const Paths&) = delete;
  Paths& operator=(const Paths&) = delete;

  Transport& transport() { return *transport_; }
  // The same on all members.
  const Limits& limits() const { return limits_; }
  std::string_view name() const { return name_; }  // "shm", "tcp", "ucx", "shm+ofi" ...
  PathClass far() const { return far_; }           // between those that share no memory
  bool any_shm() const { return any_shm_; }        // members of one host share memory
  // Some messages need not be copied aside (Transport::can_lend).
  bool lends() const { return shm_ != nullptr || (fabric_ != nullptr && !any_shm_); }

  // Returns when all members of this host have got its shared memory: from then on each may go
  // away. Throws Error(timeout), or what `throw_if_aborted` throws.
  void wait_for_host();
  // Sends what was committed, as long as some of it is taken within each `patience` (0: for ever).
  // The endpoint then waits for what the operating system still has to deliver. Nothing can be sent
  // after this.
  void send_last_bytes(const AbortState& abort, std::chrono::nanoseconds patience);

  // Any thread: connections that `peer` made, and that were asked for.
  void accept(int peer, int lane, int number, ByteStream socket);
  void opened(int peer, int lane, ByteStream socket);

  // Zeroed memory that others of the host can read in place; freed with the last copy. Null where
  // there is none to be had, or nobody to read it.
  std::shared_ptr<void> allocate(size_t bytes);
  // Lets others of the host read this memory in place, until the last copy goes (shm::Heap::adopt).
  // Null where nobody could.
  std::shared_ptr<void> register_memory(std::span<std::byte> range);
  // Whether the member shares this memory.
  bool is_near(int rank) const;
  // Where memory from these two, all of it, is for other members of the host; nothing for other
  // memory. It is there as long as its owner keeps it.
  std::optional<uint64_t> place_of(std::span<const std::byte> memory);
  // Memory that a near member has at that place, to read and write. Null where there are no
  // addresses for it. Its owner must not let go of it meanwhile.
  std::shared_ptr<std::byte> map(uint64_t place, size_t bytes);

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
  int rails_ = 1;  // that all members have
  Limits limits_;
  Cleanup room_;   // of a region of this rank's making: given back after the transport
  Cleanup offer_;  // of that region, until all have got it
  std::unique_ptr<Transport> transport_;
  TcpTransport* tcp_ = nullptr;  // within transport_, as are the next
  FabricTransport* fabric_ = nullptr;
  ShmTransport* shm_ = nullptr;
  std::vector<int> local_;  // ranks that share shm_
};

// TUTTI_TCP_STREAMS, of ranks that have so many rails. Throws Error(invalid_argument) where it is
// out of range.
int tcp_streams(int rails);

// What the members of a communicator of `ranks` would agree on, without them: `largest_local` on
// the host that has most of them. `far`: between those that share no memory, if there are such.
Limits agreed_limits(int ranks, int largest_local, bool any_shm, std::optional<PathClass> far,
                     int rails = 1);

}  // namespace tutti
