// Python's signals while the library blocks.
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

// How long a signal may go unheard: handlers of Python's run between waits.
constexpr std::chrono::milliseconds kBetweenSignals{50};

// Runs what blocks on a thread of its own, while this one hears signals; raises what it failed
// with. If a handler raises, as for an interrupt, `stop` is to make it return soon and says whether
// it will; what cannot be stopped is left behind. It may own nothing of this stack, then.
template <typename Block, typename Stop>
void hearing_signals(Block block, Stop stop) {
  std::packaged_task<Failure()> task([block = std::move(block)] {
    const tutti_status_t status = block();
    return status == TUTTI_OK ? Failure{status, ""} : last_failure(status);  // of that thread
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
