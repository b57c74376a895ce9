// Unguessable tokens: 16 bytes of system randomness in hexadecimal.
#pragma once

#include <string>

namespace tutti {

// Returns a new token. Throws Error(system) if the system has no randomness.
std::string random_token();

}  // namespace tutti
