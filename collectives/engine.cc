#include "collectives/engine.h"

#include "collectives/communicator_impl.h"

namespace tutti::internal {

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

}  // namespace tutti::internal
