// Errors of the library and of the caller as Python's exceptions.
#pragma once

#include <string>

#include "bindings/c/tutti.h"

namespace tutti::python {

// Raises tutti.Error with this code. The GIL must be held.
[[noreturn]] void raise(tutti_status_t code, const std::string& text);

// Raises what the last call of this thread failed with, if it did. The GIL must be held.
void check(tutti_status_t status);

}  // namespace tutti::python
