#include "collectives/runtime/waiting/engine.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/start_thread.h"
#include "collectives/runtime/waiting/times.h"

namespace tutti::internal {

Engine::Engine(std::unique_ptr<Endpoint> endpoint, const EngineOptions& options)
    : options_(options),
      plans_(options.cost_model, options.algorithms),
      endpoint_(std::move(endpoint)),
      spares_(endpoint_->control().size(), options.spares),
      active_(endpoint_->wait_set(), options.progress_thread) {
  if (options.progress_thread) {
    thread_ = start_thread<std::jthread>(
        "progress", [this](const std::stop_token& stop) { make_progress(stop); });
  }
}

Engine::~Engine() {
  thread_.request_stop();
  active_.ring();
  wake();
  // If a callback on the progress thread dropped the last handle of the job, the progress thread
  // runs this destructor, and exits when the callback returns.
  if (thread_.get_id() == std::this_thread::get_id()) thread_.detach();
}

void Engine::note_failure(const Error& error) {
  std::lock_guard lock(failure_mutex_);
  last_failure_ = error.what();
}

std::string Engine::last_failure() const {
  std::lock_guard lock(failure_mutex_);
  return last_failure_;
}

void Engine::add(EngineClient* communicator) {
  std::lock_guard lock(mutex_);
  communicators_.push_back(communicator);
}

void Engine::remove(EngineClient* communicator) {
  std::lock_guard lock(mutex_);
  std::erase(communicators_, communicator);
}

bool Engine::progress_others(const EngineClient* self) {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return false;
  bool moved = false;
  for (EngineClient* communicator : communicators_) {
    if (communicator != self) moved |= communicator->progress();
  }
  return moved;
}

// ---- sleeping

// Another thread may complete the caller's call until this thread holds the communicators, or until
// the sleeping thread holds them. In both cases no event would end the sleep, so `done` is checked
// after these points.
void Engine::sleep(EngineClient* self, const std::atomic<bool>* done, const Deadline& deadline) {
  // Thousands of ranks that each wake 20 times a second would keep the processors busy.
  constexpr int kRanksPerMillisecond = 4;
  const std::chrono::milliseconds for_all(control().size() / kRanksPerMillisecond);
  const auto longest = std::max(kLongestSleep, for_all);
  const std::chrono::microseconds at_most = deadline.remaining(longest);
  const auto is_done = [&] { return done != nullptr && done->load(); };
  const uint64_t turn = turns_.load();
  if (is_done()) return;
  std::unique_lock sleeper(sleeper_mutex_, std::try_to_lock);
  if (!sleeper) {
    std::unique_lock lock(turns_mutex_);
    turned_.wait_for(lock, at_most, [&] { return turns_.load() != turn; });
    return;
  }
  endpoint_->wait_set().begin();
  const bool holds = hold(self);
  end_turn();
  if (holds && !is_done()) sleep_on_held(at_most);
  endpoint_->wait_set().end();
  held_.clear();
  if (!holds) std::this_thread::sleep_for(kNap);
  // A thread that finds the mutex locked has read turns_ before it changes here.
  sleeper.unlock();
  end_turn();
}

// Wakes the threads that wait for the sleeping one.
void Engine::end_turn() {
  const std::lock_guard lock(turns_mutex_);
  turns_.fetch_add(1);
  turned_.notify_all();
}

// Locks all communicators with calls in flight, except those that other threads have locked.
// Returns false if `self` is not among the locked ones.
bool Engine::hold(EngineClient* self) {
  bool sleeps = self == nullptr;
  misses_ = false;
  const std::lock_guard lock(mutex_);
  for (EngineClient* communicator : communicators_) {
    std::unique_lock own = communicator->try_lock();
    if (!own) misses_ = true;
    if (!own || communicator->calls_in_flight() == 0) continue;
    held_.push_back({communicator, std::move(own)});
    sleeps |= communicator == self;
  }
  return sleeps;
}

void Engine::sleep_on_held(std::chrono::microseconds at_most) {
  int calls = 0;
  std::vector<Transport*> transports;
  for (const Held& held : held_) {
    calls += held.communicator->calls_in_flight();
    // The transport of a single rank is null, because it waits for no peer.
    if (Transport* const own = held.communicator->transport()) transports.push_back(own);
  }
  const bool on_word =
      held_.size() == 1 && transports.size() == 1 && !transports[0]->traits().needs_descriptors;
  endpoint_->wait_set().choose(!on_word);
  for (Transport* const transport : transports) transport->arm(endpoint_->wait_set());
  const bool stirs = std::ranges::any_of(
      held_, [](const Held& held) { return held.communicator->stirs_locked(); });
  if (!stirs) {
    for (Transport* const transport : transports) transport->watch(endpoint_->wait_set());
    const bool naps = misses_ || active_.count() > calls;
    endpoint_->wait_set().sleep(naps ? std::min<std::chrono::microseconds>(kNap, at_most)
                                     : at_most);
  }
  for (Transport* const transport : transports) transport->disarm();
}

// Runs the progress thread. While no call is in flight, it sleeps until a call starts. Otherwise it
// makes progress, and sleeps while nothing progresses. While other threads wait, and so make
// progress, it only helps at times, because these threads may be held up in a callback or a hook.
void Engine::make_progress(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    callbacks_.run();
    if (stop.stop_requested()) return;  // the engine may be destroyed
    const uint32_t rung = active_.rung();
    if (active_.count() == 0) {
      active_.wait(rung);
      continue;
    }
    // It neither spins nor yields, because another thread of this process may compute meanwhile: a
    // thread that wakes preempts it, but one that yielded its core waits for a whole time slice. It
    // first sleeps for short times, because a sleep that a message ends interrupts all processors
    // (base/asymmetric_fence.h).
    int64_t moved_ns = now_ns();
    while (active_.count() > 0 && !stop.stop_requested()) {
      const bool others_wait = waiting_.load() > 0;
      if (others_wait) std::this_thread::sleep_for(kWhileOthersWait);
      const bool moved = progress_others(nullptr);
      if (callbacks_.any()) break;
      const int64_t now = now_ns();
      if (moved || others_wait) {
        moved_ns = now;
      } else if (now - moved_ns < kNapsNs) {
        std::this_thread::sleep_for(kNap);
      } else {
        sleep(nullptr, nullptr, Deadline::never());
      }
    }
  }
}

}  // namespace tutti::internal
