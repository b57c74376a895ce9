#include "tests/support/ucx.h"

#include "base/error.h"
#include "transport/ucx/library.h"

namespace tutti::testing {

std::string lacks_ucx() {
  try {
    ucx::library();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::vector<std::string> transports() {
  if (!lacks_ucx().empty()) return {"shm", "tcp"};
  return {"shm", "tcp", "ucx"};
}

}  // namespace tutti::testing
