// Drives all communicators of one job in this process. A thread that waits for one call also makes
// progress on the others, so that calls on several communicators cannot wait for each other in a
// circle.
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

// A communicator as seen by the engine. The engine holds the communicator's lock while it calls
// calls_in_flight() or stirs_locked(), and while it uses the transport.
class EngineClient {
 public:
  // Makes progress. Returns true if anything progressed; false also if another thread is making
  // progress. Thread-safe.
  virtual bool progress() = 0;
  virtual std::unique_lock<std::mutex> try_lock() = 0;
  virtual int calls_in_flight() const = 0;
  virtual Transport* transport() = 0;  // null for a single rank
  // Makes progress. Returns true if the thread must not sleep: anything progressed, another thread
  // waits for the lock, or the communicator is aborted.
  virtual bool stirs_locked() = 0;

 protected:
  ~EngineClient() = default;
};

struct EngineOptions {
  // True if this host has more ranks than processors: a waiting rank must yield at once.
  bool oversubscribed = false;
  // True if a dedicated thread makes progress on calls while no thread waits for them.
  bool progress_thread = false;
  // Rank 0's cost model, so that all ranks choose the same algorithms.
  CostModel cost_model;
  // Additional algorithms to choose from, equal on all ranks.
  std::vector<const Algorithm*> algorithms;
  int spares = 0;  // ranks of the job that wait until needed
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

  // Records the last error of a call on an aborted communicator. If this rank exits next, the other
  // ranks report that error as the reason.
  void note_failure(const Error& error);
  // Returns the text of that error; empty if there is none.
  std::string last_failure() const;

  void add(EngineClient* communicator);
  void remove(EngineClient* communicator);

  ActiveCalls& active() { return active_; }

  // RAII: while it lives, its thread makes progress, so that the progress thread need not.
  class Waiting {
   public:
    explicit Waiting(Engine& engine) : engine_(engine) {
      if (engine_.options_.progress_thread) engine_.waiting_.fetch_add(1);
    }
    ~Waiting() {
      if (engine_.options_.progress_thread) engine_.waiting_.fetch_sub(1);
    }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    Engine& engine_;
  };

  // Makes progress on every communicator except `self`. Returns true if anything progressed.
  bool progress_others(const EngineClient* self);
  // Sleeps until any communicator with calls in flight may progress. May return early. One thread
  // sleeps in the transports; other threads that call sleep() wait for that thread. `self`:
  // communicator of the call that the caller waits for, and `done` becomes true when that call is
  // complete; null: the caller waits for no particular call.
  void sleep(EngineClient* self, const std::atomic<bool>* done, const Deadline& deadline);
  // Wakes the sleeping thread. Thread-safe.
  void wake() { endpoint_->wait_set().wake(); }

 private:
  struct Held {
    EngineClient* communicator;
    std::unique_lock<std::mutex> lock;
  };
  bool hold(EngineClient* self);
  void end_turn();
  void sleep_on_held(std::chrono::microseconds at_most);
  void make_progress(const std::stop_token& stop);

  const EngineOptions options_;
  PlanCache plans_;
  Callbacks callbacks_;
  const std::unique_ptr<Endpoint> endpoint_;
  Spares spares_;
  ActiveCalls active_;
  std::atomic<int> waiting_{
      0};  // number of threads that wait for a call, if there is a progress thread
  mutable std::mutex failure_mutex_;
  std::string last_failure_;
  std::mutex mutex_;
  std::vector<EngineClient*> communicators_;

  std::mutex sleeper_mutex_;  // held by the sleeping thread, guards held_ and misses_
  std::vector<Held> held_;
  bool misses_ = false;  // true: other threads had locked some communicators
  std::mutex turns_mutex_;
  std::condition_variable turned_;
  std::atomic<uint64_t> turns_{0};  // number of sleeps that have begun or ended

  std::jthread thread_;  // last, because it uses the other members
};

}  // namespace tutti::internal
