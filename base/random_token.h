// What nobody guesses: 16 bytes of the system's randomness, as hexadecimal digits.
#pragma once

#include <string>

namespace tutti {

// Throws Error(system) where the system has none.
std::string random_token();

}  // namespace tutti
