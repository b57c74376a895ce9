// An error that all ranks have found.
#pragma once

#include "base/error.h"
#include "collectives/communicator.h"

namespace tutti::training {

// Collective: throws `error` once every rank has come here. Without waiting, the first one to leave
// would take the communicator along, and others would learn of that instead of the error.
[[noreturn]] inline void throw_on_all(Communicator& communicator, const Error& error) {
  try {
    communicator.barrier();
  } catch (const Error&) {
    // Somebody is gone by now: at that time all were here, or it died of something else.
  }
  throw error;
}

// Collective: what make() returns; its Error, which all ranks find, as above.
template <typename Make>
auto made_on_all(Communicator& communicator, Make&& make) {
  try {
    return make();
  } catch (const Error& error) {
    throw_on_all(communicator, error);
  }
}

}  // namespace tutti::training
