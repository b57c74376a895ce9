// Access to an NCCL topology file: its XML and the meaning of its attributes.
#pragma once

#include <cmath>
#include <cstdint>
#include <pugixml.hpp>
#include <string>
#include <string_view>

#include "base/parse_number.h"
#include "base/printable.h"
#include "base/text.h"
#include "topology/xml_file.h"

namespace tutti {

class NcclFile : public XmlFile {
 public:
  using XmlFile::XmlFile;

  std::string_view text(const pugi::xml_node& node, const char* attribute) const {
    return node.attribute(attribute).value();
  }
  template <typename Number>
  Number number_or(const pugi::xml_node& node, const char* attribute, Number absent) const {
    const std::string_view word = text(node, attribute);
    if (word.empty()) return absent;
    const auto value = parse_number<Number>(word);
    if (!value || !std::isfinite(static_cast<double>(*value))) {
      refuse(node, cat(attribute, "=", in_quotes(word), " is not a number"));
    }
    return *value;
  }
  // Returns the attribute's value as number_or() does, or `unknown` if it is -1, which writers of
  // these files use for unknown.
  template <typename Number>
  Number known_or(const pugi::xml_node& node, const char* attribute, Number unknown) const {
    const auto value = number_or<Number>(node, attribute, unknown);
    return value == Number{-1} ? unknown : value;
  }
  std::string bus(const pugi::xml_node& node, const char* attribute) const;
  // Parses a PCI class: "0x030200", with or without "0x", in either case. Returns 0 if it is
  // unknown.
  uint32_t pci_class(const pugi::xml_node& node, const char* attribute) const;
  int natural_or(const pugi::xml_node& node, const char* attribute, int absent) const;
  // Parses "16 GT/s", "16.0 GT/s PCIe", "16GT/s", and returns the slot's bandwidth in 1e9 bytes per
  // second; returns `unknown` if the file does not state the speed. If the width is unknown, 16
  // lanes are assumed: writers of these files use 0 or -1 for an unknown width, the kernel 255.
  double pci_speed(const pugi::xml_node& pci, double unknown) const;
  void warn(const pugi::xml_node& node, const std::string& what) const;
};

}  // namespace tutti
