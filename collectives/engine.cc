#include "collectives/engine.h"

#include <chrono>
#include <utility>

#include "collectives/backoff.h"
#include "collectives/communicator_impl.h"

namespace tutti::internal {

Engine::Engine(std::shared_ptr<Control> control, const EngineOptions& options)
    : control_(std::move(control)), options_(options) {
  if (options.progress_thread) {
    thread_ = std::jthread([this](const std::stop_token& stop) { make_progress(stop); });
  }
}

Engine::~Engine() {
  thread_.request_stop();
  ring();
  if (!control_->forked()) last_bytes_.wait();
}

void Engine::note_failure(const Error& error) {
  std::lock_guard lock(failure_mutex_);
  last_failure_ = error.what();
}

std::string Engine::last_failure() const {
  std::lock_guard lock(failure_mutex_);
  return last_failure_;
}

void Engine::add(CommunicatorImpl* communicator) {
  std::lock_guard lock(mutex_);
  communicators_.push_back(communicator);
}

void Engine::remove(CommunicatorImpl* communicator) {
  std::lock_guard lock(mutex_);
  std::erase(communicators_, communicator);
}

bool Engine::progress_others(const CommunicatorImpl* self) {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return false;
  bool moved = false;
  for (CommunicatorImpl* communicator : communicators_) {
    if (communicator != self) moved |= communicator->progress();
  }
  return moved;
}

// Sleeps for good while no call is under way, and for short times while peers are waited for.
void Engine::make_progress(const std::stop_token& stop) {
  constexpr std::chrono::microseconds kNap(50);
  SpinTime spin;
  while (!stop.stop_requested()) {
    const uint32_t rung = rings_.load();
    if (active() == 0) {
      rings_.wait(rung);
      continue;
    }
    Backoff backoff(oversubscribed(), spin);
    while (active() > 0 && !stop.stop_requested()) {
      if (progress_others(nullptr)) {
        backoff.reset();
      } else if (!backoff.pause()) {
        std::this_thread::sleep_for(kNap);
      }
    }
  }
}

}  // namespace tutti::internal
