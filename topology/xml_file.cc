#include "topology/xml_file.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace tutti {

XmlFile::XmlFile(std::string_view xml, std::string file) : file_(std::move(file)) {
  for (size_t i = 0; i < xml.size(); ++i) {
    if (xml[i] == '\n') line_ends_.push_back(static_cast<ptrdiff_t>(i));
  }
  const pugi::xml_parse_result parsed = document_.load_buffer(xml.data(), xml.size());
  if (!parsed) {
    throw Error(ErrorCode::invalid_argument,
                cat("invalid or truncated XML: ", parsed.description()),
                {.where = cat(file_, ", line ", line_at(parsed.offset))});
  }
}

int32_t XmlFile::line_at(ptrdiff_t offset) const {
  return static_cast<int32_t>(std::ranges::lower_bound(line_ends_, std::max<ptrdiff_t>(offset, 0)) -
                              line_ends_.begin()) +
         1;
}

int32_t XmlFile::line_of(const pugi::xml_node& node) const { return line_at(node.offset_debug()); }

void XmlFile::refuse(const pugi::xml_node& node, std::string_view problem,
                     std::string_view remedy) const {
  throw Error(ErrorCode::invalid_argument, problem,
              {.where = cat(file_, ", line ", line_of(node)), .remedy = std::string(remedy)});
}

}  // namespace tutti
