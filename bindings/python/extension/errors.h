// Errors of the library and of the caller as Python's exceptions.
#pragma once

#include <string>

#include "bindings/c/tutti.h"

namespace tutti::python {

// A call's error: text and rank are of the thread that made it, and outlast that thread's next one.
struct Failure {
  tutti_status_t code;
  std::string text;
  int32_t rank = -1;
};
// Of this thread's last call.
Failure last_failure(tutti_status_t code);

// Raises tutti.Error. The GIL must be held.
[[noreturn]] void raise(const Failure& failure);
[[noreturn]] void raise(tutti_status_t code, const std::string& text);

// Raises what the last call of this thread failed with, if it did. The GIL must be held.
void check(tutti_status_t status);

}  // namespace tutti::python
