// Handles Python's signals while training waits for other ranks.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "base/text.h"
#include "collectives/communicator.h"

namespace tutti::python {

// Makes this thread run Python's signal handlers, while this object lives, whenever it waits in the
// communicator. If a handler raises, for example on an interrupt, the communicator is aborted, so
// that the wait ends. The object is constructed and destroyed with the GIL held; the thread
// releases it in between.
class Interrupts {
 public:
  explicit Interrupts(Communicator world)
      : signal_state_(std::make_shared<SignalState>(std::move(world))) {
    // The hook shares ownership, because another thread of the rank may still execute the hook when
    // it is removed.
    signal_state_->world.while_waiting([looks = signal_state_] { looks->look(); });
  }
  ~Interrupts() { signal_state_->world.while_waiting({}); }
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  // Raises the exception that a handler has raised, before or during this call.
  void raise() {
    if (signal_state_->raised) throw nanobind::python_error(std::move(*signal_state_->raised));
    if (PyErr_CheckSignals() != 0) throw nanobind::python_error();
  }

 private:
  struct SignalState {
    explicit SignalState(Communicator of) : world(std::move(of)) {}
    void look();

    Communicator world;
    // Only the thread that created the Interrupts uses the members below.
    const std::thread::id thread = std::this_thread::get_id();
    std::chrono::steady_clock::time_point last;
    std::optional<nanobind::python_error> raised;
  };

  const std::shared_ptr<SignalState> signal_state_;
};

inline void Interrupts::SignalState::look() {
  constexpr std::chrono::milliseconds kBetweenLooks{50};
  if (std::this_thread::get_id() != thread) return;
  const auto now = std::chrono::steady_clock::now();
  if (raised || now - last < kBetweenLooks) return;
  last = now;
  const nanobind::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() == 0) return;
  raised.emplace();
  world.abort(cat("rank ", world.rank(), " was interrupted"));
}

}  // namespace tutti::python
