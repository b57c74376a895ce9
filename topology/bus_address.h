// PCI addresses, which drivers and files spell in several ways.
#pragma once

#include <string>
#include <string_view>

namespace tutti {

// "0000:0a:00.0" for "00000000:0A:00.0", "0a:00.0" and "0000:0A:00.0"; a word that is no PCI
// address is returned as it is.
std::string bus_address(std::string_view word);

}  // namespace tutti
