#include "errors.h"

#include <c10/util/Exception.h>

namespace tutti::torch_backend {

std::exception_ptr error_of(tutti_status_t status, const std::string& text, const char* call) {
  // Some torch programs search error texts for the words "Timed out".
  const char* kind = status == TUTTI_TIMEOUT ? "Timed out waiting: " : "";
  const std::string what = std::string("tutti: ") + call + ": " + kind + text;
  if (status == TUTTI_INVALID_ARGUMENT) return std::make_exception_ptr(c10::ValueError({}, what));
  return std::make_exception_ptr(c10::DistBackendError({}, what));
}

}  // namespace tutti::torch_backend
