// This host's name, as its kernel knows it.
#pragma once

#include <string>

namespace tutti {

std::string host_name();

}  // namespace tutti
