#include "training/logs/keep_lines.h"

#include <cerrno>
#include <fstream>

#include "base/file_text.h"
#include "base/text.h"

namespace tutti::training {

void keep_lines(const std::string& path, const std::function<bool(std::string_view)>& keeps,
                FileKind kind) {
  const std::string text = file_text(path, kind);
  std::string kept;
  for (size_t begin = 0, end = 0; (end = text.find('\n', begin)) != text.npos; begin = end + 1) {
    const std::string_view line(text.data() + begin, end - begin);
    if (keeps(line)) kept.append(line) += '\n';
  }
  if (kept == text) return;
  errno = 0;
  std::ofstream file(path, std::ios::out);
  file << kept << std::flush;
  if (!file) throw system_error(cat("cannot write ", path), errno);
}

}  // namespace tutti::training
