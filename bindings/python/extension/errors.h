// Converts errors of the library and the caller to Python exceptions.
#pragma once

#include <string>

#include "bindings/c/tutti.h"

namespace tutti::python {

// A call's error. The text and the rank are copies, which stay valid after the calling thread's
// next call.
struct Failure {
  tutti_status_t code;
  std::string text;
  int32_t rank = -1;
};
// Returns the failure of this thread's last call.
Failure last_failure(tutti_status_t code);

// Raises tutti.Error. The GIL must be held.
[[noreturn]] void raise(const Failure& failure);
[[noreturn]] void raise(tutti_status_t code, const std::string& text);

// Raises the failure of this thread's last call if `status` is not TUTTI_OK. The GIL must be held.
void check(tutti_status_t status);

}  // namespace tutti::python
