// Formats `--help`: descriptions wrap at 100 columns and end with the default.
#pragma once

#include <memory>

namespace CLI {
class FormatterBase;
}

namespace tutti {

std::shared_ptr<CLI::FormatterBase> help_format();

}  // namespace tutti
