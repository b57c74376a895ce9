// This host's name, as the kernel reports it.
#pragma once

#include <string>

namespace tutti {

std::string host_name();

}  // namespace tutti
