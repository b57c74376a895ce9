// All communicators of one job in this process: whoever waits for one call moves the others' too,
// so that calls on several communicators cannot wait for each other in a circle.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "collectives/cost_model.h"
#include "collectives/heaps.h"
#include "transport/bootstrap/control.h"

namespace tutti::internal {

class CommunicatorImpl;

class Engine {
 public:
  Engine(std::shared_ptr<Control> control, bool oversubscribed, const CostModel& cost_model)
      : control_(std::move(control)),
        oversubscribed_(oversubscribed),
        cost_model_(cost_model),
        heaps_(*control_) {}

  Control& control() const { return *control_; }
  HeapTable& heaps() { return heaps_; }
  // More ranks on this host than cores: waiting must give way at once.
  bool oversubscribed() const { return oversubscribed_; }
  // Rank 0's, so that all ranks choose alike.
  const CostModel& cost_model() const { return cost_model_; }

  void add(CommunicatorImpl* communicator);
  void remove(CommunicatorImpl* communicator);

  // Called by communicators as calls begin and end.
  void call_begins() { active_.fetch_add(1, std::memory_order_relaxed); }
  void call_ends() { active_.fetch_sub(1, std::memory_order_relaxed); }
  int active() const { return active_.load(std::memory_order_relaxed); }

  // Moves every communicator but `self`. True if anything moved.
  bool progress_others(const CommunicatorImpl* self);

 private:
  const std::shared_ptr<Control> control_;
  const bool oversubscribed_;
  const CostModel cost_model_;
  HeapTable heaps_;
  std::atomic<int> active_{0};
  std::mutex mutex_;
  std::vector<CommunicatorImpl*> communicators_;
};

}  // namespace tutti::internal
