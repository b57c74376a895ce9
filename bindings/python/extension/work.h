// The caller's handle of a call under way.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <string>

#include "bindings/c/tutti.h"
#include "bindings/python/extension/communicator.h"
#include "bindings/python/extension/errors.h"

namespace tutti::python {

// When it ends before the call does, the communicator keeps the call's arrays until it is complete.
class Work {
 public:
  // `communicator` keeps alive what the call was started on; `result` is what wait() returns.
  Work(nanobind::handle communicator, Calls::iterator call, nanobind::handle result, bool receives);
  Work(Work&& other) noexcept;
  ~Work();

  // Returns the result, or raises how the call failed. After an interrupt the call goes on, and may
  // be waited for again.
  nanobind::object wait();
  // The same where nobody could wait again: an interrupt aborts the communicator.
  nanobind::object finish();
  // False: the call is not complete after so many seconds.
  bool wait_for(double seconds);
  bool test();
  void abort(const std::string& reason);
  // What a receive that is complete has received.
  const tutti_message_t& message() const;

 private:
  // Runs a function of the library that may end the call.
  template <typename Function>
  void advance(Function function);
  void end(tutti_status_t status);
  // Raises how the call failed, if it did.
  bool ended() const;

  nanobind::object owner_;
  Communicator* communicator_;  // null: moved from
  Calls::iterator call_;        // while the call is under way, and the communicator open
  nanobind::object result_;
  bool receives_;
  bool complete_ = false;
  bool entered_ = false;  // by a thread
  std::optional<Failure> failure_;
  tutti_message_t message_ = TUTTI_MESSAGE_INIT;
};

}  // namespace tutti::python
