// The caller's handle of a call in flight.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <string>

#include "bindings/c/tutti.h"
#include "bindings/python/extension/communicator.h"
#include "bindings/python/extension/errors.h"

namespace tutti::python {

// A handle. If it is destroyed before the call completes, the communicator keeps the call's arrays
// until then.
class Work {
 public:
  // Takes a started call. `communicator` keeps the call's communicator alive; `result` is what
  // wait() returns.
  Work(nanobind::handle communicator, Calls::iterator call, nanobind::handle result, bool receives);
  Work(Work&& other) noexcept;
  ~Work();

  // Returns the result, or raises the call's failure. After an interrupt the call continues, and
  // wait() may be called again.
  nanobind::object wait();
  // Waits as wait() does, but an interrupt aborts the communicator. It is for callers that cannot
  // wait again.
  nanobind::object finish();
  // Waits for at most `seconds`. Returns false if the call is not complete by then.
  bool wait_for(double seconds);
  bool test();
  void abort(const std::string& reason);
  // Returns the envelope of a completed receive's message.
  const tutti_message_t& message() const;

 private:
  // Runs a library function that may end the call.
  template <typename Function>
  void advance(Function function);
  void end(tutti_status_t status);
  // Returns true if the call has ended. Raises the call's failure.
  bool ended() const;

  nanobind::object owner_;
  Communicator* communicator_;  // null once this object was moved from
  Calls::iterator call_;        // valid while the call is in flight and the communicator open
  nanobind::object result_;
  bool receives_;
  bool complete_ = false;
  bool entered_ = false;  // true: a thread is inside advance()
  std::optional<Failure> failure_;
  tutti_message_t message_ = TUTTI_MESSAGE_INIT;
};

}  // namespace tutti::python
