#include "transport/paths/fabrics.h"

#include "base/error.h"
#include "transport/ucx/probe.h"

namespace tutti {

std::vector<Fabric> probe_fabrics() {
  Fabric ucx{.name = "ucx"};
  try {
    ucx.version = ucx::version();
    ucx.devices = ucx::devices();
  } catch (const Error& error) {
    ucx.problem = error.what();
  }
  return {ucx};
}

}  // namespace tutti
