// All communicators of one job in this process: whoever waits for one call moves the others' too,
// so that calls on several communicators cannot wait for each other in a circle.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "collectives/cost/cost_model.h"
#include "collectives/program/algorithm.h"
#include "collectives/runtime/calls/active_calls.h"
#include "collectives/runtime/calls/plans.h"
#include "collectives/runtime/waiting/callbacks.h"
#include "collectives/runtime/waiting/spares.h"
#include "transport/paths/endpoint.h"
#include "transport/transport.h"

namespace tutti::internal {

// A communicator, as the engine sees it. The caller holds its lock during calls_under_way(),
// stirs_locked() and all use of its transport.
class EngineClient {
 public:
  // Moves what can be moved; true if anything did. Any thread; false if another one is at it.
  virtual bool progress() = 0;
  virtual std::unique_lock<std::mutex> try_lock() = 0;
  virtual int calls_under_way() const = 0;
  virtual Transport* transport() = 0;  // null where there is only one rank
  // Moves what can be moved. True if anything moved, or another thread waits for the lock.
  virtual bool stirs_locked() = 0;

 protected:
  ~EngineClient() = default;
};

struct EngineOptions {
  // More ranks on this host than processors: waiting must give way at once.
  bool oversubscribed = false;
  // A thread of its own moves calls that nobody waits for at the moment.
  bool progress_thread = false;
  // Rank 0's, so that all ranks choose alike.
  CostModel cost_model;
  // Beside the built-in ones, what is chosen from: the same on all ranks.
  std::vector<const Algorithm*> algorithms;
  int spares = 0;  // ranks of the job that wait until they are needed
};

class Engine {
 public:
  Engine(std::unique_ptr<Endpoint> endpoint, const EngineOptions& options);
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  ~Engine();

  Endpoint& endpoint() { return *endpoint_; }
  Control& control() const { return endpoint_->control(); }
  bool oversubscribed() const { return options_.oversubscribed; }
  PlanCache& plans() { return plans_; }
  const EngineOptions& options() const { return options_; }
  Callbacks& callbacks() { return callbacks_; }
  Spares& spares() { return spares_; }

  // The last error with which a call on a communicator that was aborted ended: should this rank
  // give up next, the others learn why. Empty: there was none.
  void note_failure(const Error& error);
  std::string last_failure() const;

  void add(EngineClient* communicator);
  void remove(EngineClient* communicator);

  ActiveCalls& active() { return active_; }

  // Moves every communicator but `self`. True if anything moved.
  bool progress_others(const EngineClient* self);
  // Sleeps until something may move on any communicator with calls under way, `self` (if any) among
  // them; often shorter. One thread sleeps for all; the others wait for it.
  void sleep(EngineClient* self, const Deadline& deadline);
  // Ends that sleep; from any thread.
  void wake() { endpoint_->wait_set().wake(); }

 private:
  struct Held {
    EngineClient* communicator;
    std::unique_lock<std::mutex> lock;
  };
  bool hold(EngineClient* self);
  void sleep_on_held(std::chrono::microseconds at_most);
  void make_progress(const std::stop_token& stop);

  const EngineOptions options_;
  PlanCache plans_;
  Callbacks callbacks_;
  const std::unique_ptr<Endpoint> endpoint_;
  Spares spares_;
  ActiveCalls active_;
  mutable std::mutex failure_mutex_;
  std::string last_failure_;
  std::mutex mutex_;
  std::vector<EngineClient*> communicators_;

  std::mutex sleeper_mutex_;  // the sleeper's, with what it holds
  std::vector<Held> held_;
  std::mutex turns_mutex_;
  std::condition_variable turned_;
  std::atomic<uint64_t> turns_{0};  // sleeps that have ended

  std::jthread thread_;  // last: it uses all the rest
};

}  // namespace tutti::internal
