// An untrusted XML file: its parsed tree, and the line of every element for error messages.
#pragma once

#include <cstdint>
#include <pugixml.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

class XmlFile {
 public:
  // Parses `xml`. `file`: its name in messages. Throws Error(invalid_argument) that names the line
  // if the text is not XML, or is truncated.
  XmlFile(std::string_view xml, std::string file);

  const std::string& name() const { return file_; }
  pugi::xml_node child(const char* name) const { return document_.child(name); }
  // Returns the line of an element, counted from 1.
  int32_t line_of(const pugi::xml_node& node) const;

  // Throws Error(invalid_argument) that says `problem` and names file and line.
  [[noreturn]] void refuse(const pugi::xml_node& node, std::string_view problem,
                           std::string_view remedy = {}) const;

 private:
  int32_t line_at(ptrdiff_t offset) const;

  std::string file_;
  std::vector<ptrdiff_t> line_ends_;
  pugi::xml_document document_;
};

}  // namespace tutti
