// The library's errors as torch's exceptions. What throws them is in errors.cc, so that the rest of
// a process group's lifetime is compiled without torch, too.
#pragma once

#include <exception>
#include <string>

#include "tutti.h"

namespace tutti::torch_backend {

// c10::ValueError for an invalid argument, else c10::DistBackendError, with the library's text.
std::exception_ptr error_of(tutti_status_t status, const std::string& text, const char* call);

[[noreturn]] inline void fail(tutti_status_t status, const std::string& text, const char* call) {
  std::rethrow_exception(error_of(status, text, call));
}

// Throws what the calling thread's last call failed with, for a status that is not TUTTI_OK.
inline void check(tutti_status_t status, const char* call) {
  if (status != TUTTI_OK) fail(status, tutti_error_text(), call);
}

}  // namespace tutti::torch_backend
