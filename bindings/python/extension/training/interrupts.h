// Python's signals while training waits for other ranks.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "base/text.h"
#include "collectives/communicator.h"

namespace tutti::python {

// While it lives, this thread runs Python's signal handlers whenever it waits in the communicator.
// When one raises, as for an interrupt, the communicator is aborted, so that the wait ends. Made
// and ended with the GIL held; the thread lets go of it in between.
class Interrupts {
 public:
  explicit Interrupts(Communicator world) : world_(std::move(world)) {
    world_.while_waiting([this] { look(); });
  }
  ~Interrupts() { world_.while_waiting({}); }
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  // Raises what a handler raised, if one did, or does now.
  void raise() {
    if (raised_) throw nanobind::python_error(std::move(*raised_));
    if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
  }

 private:
  static constexpr std::chrono::milliseconds kBetweenLooks{50};

  void look() {
    const auto now = std::chrono::steady_clock::now();
    if (std::this_thread::get_id() != thread_ || raised_ || now - last_ < kBetweenLooks) return;
    last_ = now;
    const nanobind::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() == 0) return;
    raised_.emplace();
    world_.abort(cat("rank ", world_.rank(), " was interrupted"));
  }

  Communicator world_;
  std::thread::id thread_ = std::this_thread::get_id();
  std::chrono::steady_clock::time_point last_;
  std::optional<nanobind::python_error> raised_;
};

}  // namespace tutti::python
