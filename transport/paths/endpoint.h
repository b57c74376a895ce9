// The resources that all communicators of this process share: the control channel, the wait set,
// the memory that other ranks of its host read in place, the connections whose last bytes are in
// flight and, if the job uses one, a fabric (UCX, libfabric).
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "transport/bootstrap/control/control.h"
#include "transport/fault/fault_transport.h"
#include "transport/paths/fabrics.h"
#include "transport/shm/heap_table.h"
#include "transport/tcp/last_bytes.h"
#include "transport/wait_set.h"

namespace tutti {

namespace fabric {
class Provider;
}

class Endpoint {
 public:
  // Opens the job's fabric (`measured`: see open_fabric()), and joins the job by Control::connect()
  // with this process's PeerInfo. Throws the errors of open_fabric() and Control::connect(), and
  // Error: invalid_argument (TUTTI_FAULT), system.
  Endpoint(const Job& job, const MeasuredFabrics& measured);
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;
  // Blocks until the last bytes of all communicators have arrived.
  ~Endpoint();

  Control& control() const { return *control_; }
  WaitSet& wait_set() { return wait_set_; }
  shm::HeapTable& heaps() { return heaps_; }
  LastBytes& last_bytes() { return last_bytes_; }
  Faults& faults() { return faults_; }  // faults of TUTTI_FAULT for this rank
  // Returns the fabric that connects all hosts of the job; null if TCP connects them.
  fabric::Provider* fabric() { return uses_fabric_ ? fabric_.get() : nullptr; }
  std::string_view fabric_name() const { return fabric_name_; }  // as in TUTTI_TRANSPORT
  // Returns the name of another rank's wait set.
  std::string bell_of(int world_rank) const;

 private:
  Endpoint(const Job& job, OpenedFabric fabric);
  Job with_address(Job job) const;
  void join_fabric();

  const std::string fabric_name_;
  // Destroyed after control_, because peers may use the fabric until they learn that this rank has
  // left.
  const std::unique_ptr<fabric::Provider> fabric_;
  bool uses_fabric_ = false;
  const std::shared_ptr<Control> control_;
  WaitSet wait_set_;
  shm::HeapTable heaps_;
  LastBytes last_bytes_;
  Faults faults_;
};

}  // namespace tutti
