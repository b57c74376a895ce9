#include "driver.h"

#include <chrono>
#include <utility>

namespace tutti::torch_backend {

namespace {

// Delay before the Driver's thread takes over a new call, because most callers wait for their calls
// at once.
constexpr std::chrono::microseconds kGrace{50};

}  // namespace

Driver::Calls Driver::State::take_ended() {
  Calls ended;
  for (auto call = calls.begin(); call != calls.end();) {
    const auto current = call++;
    if ((*current)->ended()) ended.splice(ended.end(), calls, current);
  }
  return ended;
}

void Driver::run(const std::shared_ptr<State>& state) {
  std::unique_lock lock(state->mutex);
  while (!state->ending) {
    if (Calls ended = state->take_ended(); !ended.empty()) {
      lock.unlock();
      ended.clear();
      lock.lock();
    } else if (state->calls.empty() || state->others_drive > 0) {
      state->changed.wait(lock);
      lock.unlock();
      std::this_thread::sleep_for(kGrace);
      lock.lock();
    } else {
      std::shared_ptr<Driven> oldest = state->calls.front();
      lock.unlock();
      oldest->drive();
      oldest.reset();
      lock.lock();
    }
  }
}

void Driver::add(std::shared_ptr<Driven> call) {
  Calls ended;
  const std::lock_guard lock(state_->mutex);
  Calls& calls = state_->calls;
  const bool first = calls.empty();
  // Ended calls are removed, so that the list stays short while the thread is idle.
  while (!calls.empty() && calls.front()->ended()) {
    ended.splice(ended.end(), calls, calls.begin());
  }
  calls.push_back(std::move(call));
  if (!thread_.joinable()) {
    thread_ = std::thread([state = state_] { run(state); });
  }
  if (first || calls.size() == 1) state_->changed.notify_all();
}

Driver::~Driver() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->ending = true;
    state_->changed.notify_all();
  }
  if (!thread_.joinable()) return;
  if (thread_.get_id() == std::this_thread::get_id()) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

Driver::Rest::Rest(Driver& driver) : state_(driver.state_) {
  const std::lock_guard lock(state_->mutex);
  ++state_->others_drive;
}

Driver::Rest::~Rest() {
  Calls ended;
  const std::lock_guard lock(state_->mutex);
  ended = state_->take_ended();
  if (--state_->others_drive == 0 && !state_->calls.empty()) state_->changed.notify_all();
}

std::vector<std::shared_ptr<Driven>> Driver::of(const Connection& connection) {
  const std::lock_guard lock(state_->mutex);
  std::vector<std::shared_ptr<Driven>> found;
  for (const auto& call : state_->calls) {
    if (call->connection() == &connection) found.push_back(call);
  }
  return found;
}

}  // namespace tutti::torch_backend
