// Handles Python's signals while the library blocks.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <utility>

#include "bindings/c/tutti.h"
#include "bindings/python/extension/errors.h"

namespace tutti::python {

// Maximum delay of a signal. Python's handlers run between waits of this length.
constexpr std::chrono::milliseconds kBetweenSignals{50};

// Runs a blocking call on a thread of its own while this thread handles signals; raises the call's
// failure. If a handler raises, for example on an interrupt, calls stop() and raises the handler's
// exception. stop() should make the call return soon, and must return true if the call will return.
// Otherwise the call is left running, so it must not refer to this thread's stack.
template <typename Block, typename Stop>
void listening_for_signals(Block block, Stop stop) {
  std::packaged_task<Failure()> task([block = std::move(block)] {
    const tutti_status_t status = block();
    // last_failure() must be called on the thread that made the call.
    return status == TUTTI_OK ? Failure{status, ""} : last_failure(status);
  });
  std::future<Failure> outcome = task.get_future();
  std::thread thread(std::move(task));
  const auto ended_within = [&](auto time) {
    nanobind::gil_scoped_release without_gil;
    return outcome.wait_for(time) == std::future_status::ready;
  };
  while (!ended_within(kBetweenSignals)) {
    if (PyErr_CheckSignals() == 0) continue;
    nanobind::python_error interrupt;
    if (stop()) {
      nanobind::gil_scoped_release without_gil;
      thread.join();
    } else {
      thread.detach();
    }
    throw interrupt;
  }
  thread.join();
  const Failure failure = outcome.get();
  if (failure.code != TUTTI_OK) raise(failure);
}

}  // namespace tutti::python
