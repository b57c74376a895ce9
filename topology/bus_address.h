// PCI addresses, which drivers and files spell differently.
#pragma once

#include <string>
#include <string_view>

namespace tutti {

// Returns the address in the kernel's form: "00000000:0A:00.0", "0a:00.0" and "0000:0A:00.0" become
// "0000:0a:00.0". Returns words that are not PCI addresses unchanged.
std::string bus_address(std::string_view word);

}  // namespace tutti
