// Converts the library's errors to torch's exceptions. The throwing functions are in errors.cc, so
// that the code for joining and leaving also compiles without torch.
#pragma once

#include <exception>
#include <string>

#include "tutti.h"

namespace tutti::torch_backend {

// Returns c10::ValueError for an invalid argument, otherwise c10::DistBackendError, with the
// library's text.
std::exception_ptr error_of(tutti_status_t status, const std::string& text, const char* call);

[[noreturn]] inline void fail(tutti_status_t status, const std::string& text, const char* call) {
  std::rethrow_exception(error_of(status, text, call));
}

// Throws the calling thread's last error if `status` is not TUTTI_OK.
inline void check(tutti_status_t status, const char* call) {
  if (status != TUTTI_OK) fail(status, tutti_error_text(), call);
}

}  // namespace tutti::torch_backend
