// What all communicators of this process share in order to reach the other ranks: the control
// channel, what to sleep on, the memory that others of its host read in place, the connections
// whose last bytes are on their way, and a fabric (UCX, libfabric) where the job uses one.
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
  // Joins the job: Control::connect() with what others need to know of this process. `measured`: as
  // for open_fabric(). Throws Error as that does, and unsupported, system.
  Endpoint(const Job& job, const MeasuredFabrics& measured);
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;
  // Waits until the last bytes of all communicators have arrived.
  ~Endpoint();

  Control& control() const { return *control_; }
  WaitSet& wait_set() { return wait_set_; }
  shm::HeapTable& heaps() { return heaps_; }
  LastBytes& last_bytes() { return last_bytes_; }
  Faults& faults() { return faults_; }  // that TUTTI_FAULT has for this rank
  // What all ranks of the job reach each other by between hosts. Null: TCP.
  fabric::Provider* fabric() { return uses_fabric_ ? fabric_.get() : nullptr; }
  std::string_view fabric_name() const { return fabric_name_; }  // as in TUTTI_TRANSPORT
  // The name of another rank's wait set.
  std::string bell_of(int world_rank) const;

 private:
  Endpoint(const Job& job, OpenedFabric fabric);
  Job with_address(Job job) const;
  void join_fabric();

  const std::string fabric_name_;
  // Others can reach it until they have heard that this rank leaves.
  const std::unique_ptr<fabric::Provider> fabric_;
  bool uses_fabric_ = false;
  const std::shared_ptr<Control> control_;
  WaitSet wait_set_;
  shm::HeapTable heaps_;
  LastBytes last_bytes_;
  Faults faults_;
};

}  // namespace tutti
