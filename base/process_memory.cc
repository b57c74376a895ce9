#include "base/process_memory.h"

#include <fstream>

namespace tutti {

int64_t proportional_set_size(const std::string& file) {
  std::ifstream lines(file);
  std::string key;
  while (lines >> key) {
    int64_t kibibytes = 0;
    if (key == "Pss:" && lines >> kibibytes) return kibibytes * 1024;
    lines.ignore(1 << 12, '\n');
  }
  return 0;
}

}  // namespace tutti
