// What all communicators of this process share in order to reach the other ranks: the control
// channel, what to sleep on, the memory that others of its host read in place, the connections
// whose last bytes are on their way, and UCX where the settings want it.
#pragma once

#include <memory>
#include <string>

#include "transport/bootstrap/control.h"
#include "transport/shm/heap_table.h"
#include "transport/tcp/last_bytes.h"
#include "transport/wait_set.h"

namespace tutti {

namespace ucx {
class Provider;
}

class Endpoint {
 public:
  // Joins the job: Control::connect() with what others need to know of this process. Throws Error
  // as that does, and unsupported, system.
  explicit Endpoint(const Job& job);
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;
  // Waits until the last bytes of all communicators have arrived.
  ~Endpoint();

  Control& control() const { return *control_; }
  WaitSet& wait_set() { return wait_set_; }
  shm::HeapTable& heaps() { return heaps_; }
  LastBytes& last_bytes() { return last_bytes_; }
  ucx::Provider* ucx() { return ucx_.get(); }  // null: the settings do without
  // The name of another rank's wait set.
  std::string bell_of(int world_rank) const;

 private:
  Endpoint(const Job& job, std::unique_ptr<ucx::Provider> ucx);

  // Others can reach it until they have heard that this rank leaves.
  const std::unique_ptr<ucx::Provider> ucx_;
  const std::shared_ptr<Control> control_;
  WaitSet wait_set_;
  shm::HeapTable heaps_;
  LastBytes last_bytes_;
};

}  // namespace tutti
