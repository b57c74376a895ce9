#include "topology/nccl_file.h"

#include <charconv>

#include "base/log.h"
#include "topology/bus_address.h"
#include "topology/link_speeds.h"

namespace tutti {

std::string NcclFile::bus(const pugi::xml_node& node, const char* attribute) const {
  return bus_address(text(node, attribute));
}

uint32_t NcclFile::pci_class(const pugi::xml_node& node, const char* attribute) const {
  std::string_view word = text(node, attribute);
  if (word.starts_with("0x") || word.starts_with("0X")) word.remove_prefix(2);
  uint32_t value = 0;
  std::from_chars(word.data(), word.data() + word.size(), value, 16);
  return value;
}

int NcclFile::natural_or(const pugi::xml_node& node, const char* attribute, int absent) const {
  const int value = number_or<int>(node, attribute, absent);
  if (value < 0 && value != absent) {
    refuse(node, cat(attribute, "=\"", value, "\" must not be negative"));
  }
  return value;
}

double NcclFile::pci_speed(const pugi::xml_node& pci, double unknown) const {
  const std::string_view word = text(pci, "link_speed");
  int lanes = known_or(pci, "link_width", 0);
  if (lanes == 255) lanes = 0;
  if (lanes < 0 || lanes > 64)
    refuse(pci, cat("link_width=\"", lanes, "\" is not a PCI Express width"));
  if (word.empty() || word == "-1" || word.starts_with("Unknown")) return unknown;
  double gigatransfers = 0;
  const auto [end, status] = std::from_chars(word.data(), word.data() + word.size(), gigatransfers);
  std::string_view unit = word.substr(static_cast<size_t>(end - word.data()));
  if (unit.starts_with(' ')) unit.remove_prefix(1);
  if (status != std::errc{} || !unit.starts_with("GT/s") || !(gigatransfers > 0)) {
    refuse(pci, cat("link_speed=", in_quotes(word), " is not a PCI Express speed"),
           "write it as \"16 GT/s\"");
  }
  constexpr double kMostGigatransfers = 128;  // PCIe 7
  if (gigatransfers > kMostGigatransfers) {
    warn(pci, cat("link_speed=", in_quotes(word), " exceeds any PCI Express generation: ignored"));
    return unknown;
  }
  constexpr double kSlowForSo = 5;
  if (lanes == 16 && gigatransfers <= kSlowForSo) {
    warn(pci, cat("16 lanes at ", word, ": the slot, a riser or power saving limits the device"));
  }
  return pci_GBps(gigatransfers, lanes == 0 ? 16 : lanes);
}

void NcclFile::warn(const pugi::xml_node& node, const std::string& what) const {
  log(LogLevel::warning, cat(name(), ", line ", line_of(node), ": ", what));
}

}  // namespace tutti
