#include "base/path.h"

#include <unistd.h>

#include <cstdlib>

#include "base/text.h"

namespace tutti {

std::string find_program(const std::string& name) {
  const char* path = std::getenv("PATH");
  for (const std::string& folder : split(path != nullptr ? path : "", ':')) {
    if (folder.empty()) continue;
    std::string file = cat(folder, '/', name);
    if (::access(file.c_str(), X_OK) == 0) return file;
  }
  return {};
}

}  // namespace tutti
