#include "training/parallel/join.h"

#include "base/settings.h"

namespace tutti::training {

Communicator join(const MeshShape& shape) {
  constexpr const char* kProgressThread = "TUTTI_PROGRESS_THREAD";
  if (shape.pipeline > 1 && settings().value(kProgressThread).origin == "default") {
    settings().set(kProgressThread, "1");
  }
  return Communicator::init();
}

}  // namespace tutti::training
