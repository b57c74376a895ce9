#include "base/file_text.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/text.h"

namespace tutti {

std::string file_text(const std::string& path, uintmax_t most, const ErrorDetail& detail) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) throw system_error(cat("cannot read ", path), errno, detail);
  std::error_code none;  // a pipe has no size
  const uintmax_t bytes = std::filesystem::file_size(path, none);
  if (!none && bytes > most) {
    throw Error(ErrorCode::invalid_argument,
                cat(path, " has ", human_bytes(bytes), ", more than the ", human_bytes(most),
                    " that such a file may have"),
                detail);
  }
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (file.bad() || (text.empty() && std::filesystem::is_directory(path, none))) {
    throw system_error(cat("cannot read ", path), errno != 0 ? errno : EISDIR, detail);
  }
  return text;
}

}  // namespace tutti
